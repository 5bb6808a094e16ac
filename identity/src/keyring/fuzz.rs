//! Any text as a file of deployment keys: refused without a word of it, or a few keys.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// A derived key of each line that is one, of eight at most, and its authority's.
const MEMORY: Memory = Memory {
    base: 64 << 10,
    per_byte: 8,
};

#[test]
fn peer_key_file() {
    fuzz!("peer_key_file", MEMORY, |bytes| {
        match Keyring::parse("keys", bytes) {
            Ok(keyring) => {
                let ids = keyring.key_ids();
                assert!((1..=KEYS_MAX).contains(&ids.len()));
                assert_eq!(ids[0].1, KeyUse::Signs);
                assert!(ids[1..].iter().all(|(_, of)| *of == KeyUse::Verifies));
            }
            Err(error) => {
                let text = error.to_string();
                let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
                let keys = lines.filter(|line| line.len() >= KEY_LEN_MIN);
                for key in keys.filter_map(|key| std::str::from_utf8(key).ok()) {
                    assert!(!text.contains(key), "the text shows a key");
                }
            }
        }
    });
}
