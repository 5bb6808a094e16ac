//! GGUF headers: whole, truncated, corrupt and hostile.

use super::*;
use pd_compute::WeightFormat;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden/tiny-gguf")
        .join(name)
}

fn bytes() -> Vec<u8> {
    fs::read(golden("llama-q4_0.gguf")).unwrap()
}

fn refusal(bytes: &[u8]) -> String {
    Header::parse(bytes)
        .expect_err("must be refused")
        .to_string()
}

/// Length of the header: everything the parser reads.
fn header_len(bytes: &[u8]) -> usize {
    Header::parse(bytes).unwrap().header_len
}

#[test]
fn every_tensor_lies_in_the_file() {
    let gguf = Gguf::open(&golden("llama-k.gguf")).unwrap();
    assert_eq!(
        gguf.metadata().text("general.architecture").unwrap(),
        Some("llama")
    );
    assert_eq!(gguf.metadata().size("llama.block_count").unwrap(), Some(1));
    assert_eq!(gguf.tensor_count(), 11);
    let table = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!(
        (table.rows, table.columns, table.format),
        (384, 256, WeightFormat::Q6K)
    );
    assert_eq!(table.bytes.len(), 384 * 210);
}

#[test]
fn a_truncated_file_names_field_and_offset() {
    let bytes = bytes();
    assert_eq!(
        refusal(&bytes[..6]),
        "the file ends inside the version at byte 4: 4 bytes needed, 2 left; it is truncated or \
         corrupt, fetch it again"
    );
    let message = refusal(&bytes[..bytes.len() - 1]);
    assert!(message.contains("end beyond the file's"), "{message}");
}

#[test]
fn no_prefix_of_a_file_is_accepted() {
    let bytes = bytes();
    for len in 0..header_len(&bytes) {
        Header::parse(&bytes[..len]).expect_err("a prefix is truncated");
    }
}

#[test]
fn foreign_and_future_files_are_refused() {
    let mut bytes = bytes();
    bytes[4] = 9;
    assert_eq!(
        refusal(&bytes),
        "the version at byte 4 is 9, expected 2 or 3, little-endian; the file is corrupt or of \
         another kind, fetch it again"
    );
    bytes[0] = b'X';
    assert!(
        refusal(&bytes).starts_with("the magic at byte 0 is 0x"),
        "{}",
        refusal(&bytes)
    );
}

#[test]
fn counts_beyond_the_file_are_refused_before_anything_is_allocated() {
    let mut bytes = bytes();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refusal(&bytes).starts_with("the file ends inside the number of tensors"));
}

#[test]
fn arrays_nested_too_deep_are_refused() {
    let mut bytes = Vec::new();
    bytes.extend(b"GGUF");
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(b"k");
    for _ in 0..1000 {
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
    }
    let bytes = [&bytes[..33], &bytes[33..]].concat();
    assert!(Header::parse(&bytes).is_err());
}

proptest! {
    /// For any bytes of a header, the parser answers: no panic, no tensor outside the file.
    #[test]
    fn mutated_headers_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        word in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
    ) {
        let mut bytes = bytes();
        let len = header_len(&bytes);
        for (at, byte) in changes {
            bytes[at.index(len)] = byte;
        }
        if let Some((at, word)) = word {
            bytes[at.index(len - 8)..][..8].copy_from_slice(&word.to_le_bytes());
        }
        if let Ok(header) = Header::parse(&bytes) {
            for info in header.tensors.values() {
                prop_assert!(info.start <= info.end && info.end <= bytes.len());
            }
        }
    }
}
