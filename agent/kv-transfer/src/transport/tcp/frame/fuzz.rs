//! Any bytes as the header of a data frame.

use super::*;
use pd_fuzz::{Memory, fuzz};

const MEMORY: Memory = Memory {
    base: 0,
    per_byte: 0,
};

#[test]
fn data_frame_header() {
    fuzz!("data_frame_header", MEMORY, |bytes| {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return;
        };
        if let Ok(read) = FrameHeader::decode(header) {
            assert!(read.payload_bytes <= PAYLOAD_BYTES_MAX);
            assert_eq!(FrameHeader::decode(&read.encode()), Ok(read));
        }
    });
}
