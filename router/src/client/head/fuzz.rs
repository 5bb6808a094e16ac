//! Any bytes of a worker as the head of an answer.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// A hundred headers have a table of their own.
const MEMORY: Memory = Memory {
    base: 64 << 10,
    per_byte: 16,
};

#[test]
fn answer_head() {
    fuzz!("answer_head", MEMORY, |bytes| {
        let mut buffer = BytesMut::from(bytes);
        let taken = take(&mut buffer);
        assert!(bytes.ends_with(&buffer));
        let Ok(Some(head)) = taken else {
            return;
        };
        let Head {
            parts,
            framing,
            keeps_alive,
        } = head;
        assert!(parts.headers.len() <= HEADERS_MAX);
        assert!(framing != Framing::Close || !keeps_alive);
    });
}
