//! Facts about data frames.

use super::*;
use proptest::prelude::*;

fn mk_header() -> FrameHeader {
    FrameHeader {
        room: BootstrapRoom::new(1001).unwrap(),
        generation: Generation(7),
        first_page: 3,
        page_count: 2,
        last: true,
        payload_bytes: 8192,
    }
}

#[test]
fn the_header_is_pinned() {
    let hex: String = mk_header()
        .encode()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    insta::assert_snapshot!(hex);
}

#[test]
fn room_zero_and_an_endless_payload_are_refused() {
    let mut bytes = mk_header().encode();
    bytes[8..16].fill(0);
    assert_eq!(FrameHeader::decode(&bytes), Err(HeaderError::Room(0)));
    let mut bytes = mk_header().encode();
    bytes[32..40].fill(0xff);
    assert!(matches!(
        FrameHeader::decode(&bytes),
        Err(HeaderError::TooLong(_))
    ));
}

proptest! {
    #[test]
    fn a_header_reads_back_as_written(first_page: u32, page_count: u32, last: bool) {
        let header = FrameHeader { first_page, page_count, last, ..mk_header() };
        prop_assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: [u8; 32], magic: bool) {
        let mut header = [0; HEADER_BYTES];
        header[..32].copy_from_slice(&bytes);
        if magic {
            header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        }
        let _ = FrameHeader::decode(&header);
    }
}
