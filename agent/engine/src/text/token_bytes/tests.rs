//! What vocabulary entries stand for.

use super::*;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

#[test]
fn every_byte_has_one_byte_level_letter() {
    let mut bytes: Vec<u8> = ByteLevel::alphabet()
        .into_iter()
        .filter_map(byte_of)
        .collect();
    bytes.sort_unstable();
    assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<_>>());
    assert_eq!(byte_of('Ġ'), Some(b' '));
    assert_eq!(byte_of('Ċ'), Some(b'\n'));
    assert_eq!(byte_of(' '), None);
    assert_eq!(byte_of('好'), None);
}

#[test]
fn entries_become_the_bytes_they_stand_for() {
    let entries = |list: &[&str]| {
        list.iter()
            .map(|entry| Some((*entry).to_owned()))
            .collect::<Vec<_>>()
    };
    let byte_level = TokenBytes::new(
        entries(&["Ġthe", "<|x y|>", "Ã"]).into_iter(),
        Spelling::ByteLevel,
    );
    assert_eq!(byte_level.get(0), b" the");
    assert_eq!(byte_level.get(1), b"<|x y|>");
    assert_eq!(byte_level.get(2), [0xC3]);
    assert_eq!(byte_level.get(3), b"");
    let pieces = TokenBytes::new(
        entries(&["▁the", "<0x0A>", "<0xZZ>", "<unk>"]).into_iter(),
        Spelling::SentencePiece,
    );
    assert_eq!(pieces.get(0), b" the");
    assert_eq!(pieces.get(1), b"\n");
    assert_eq!(pieces.get(2), b"<0xZZ>");
    assert_eq!(pieces.get(3), b"<unk>");
}

#[test]
fn a_gap_in_the_ids_stands_for_nothing() {
    let entries = [Some("a".to_owned()), None, Some("b".to_owned())];
    let table = TokenBytes::new(entries.into_iter(), Spelling::ByteLevel);
    assert_eq!(
        (table.len(), table.get(1), table.get(2)),
        (3, &b""[..], &b"b"[..])
    );
}
