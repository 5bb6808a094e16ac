//! Any bytes as a metadata row: what is read fits the row, and writes the same row again.

use super::*;
use pd_fuzz::{Memory, fuzz};

const MEMORY: Memory = Memory {
    base: 64 << 10,
    per_byte: 16,
};

/// The first two bytes choose the layout, the rest is the row: as long as it is, and made to fit.
#[test]
fn metadata_row() {
    fuzz!("metadata_row", MEMORY, |bytes| {
        let [hidden_size, dtype, row @ ..] = bytes else {
            return;
        };
        let layout = MetadataLayout {
            hidden_size: u32::from(*hidden_size),
            hidden_dtype: if dtype % 2 == 0 {
                KvDtype::Float32
            } else {
                KvDtype::Fp8E4m3
            },
        };
        let room = BootstrapRoom::new(7).expect("a room");
        let _ = MetadataRow::decode(&layout, row, room);
        let mut row = row.to_vec();
        row.resize(layout.row_bytes(), 0);
        let at = layout.offsets().bootstrap_room;
        row[at..at + 8].copy_from_slice(&room.get().to_le_bytes());
        if let Ok(read) = MetadataRow::decode(&layout, &row, room) {
            let written = read.encode(&layout).expect("what was read fits");
            let again =
                MetadataRow::decode(&layout, &written, room).expect("what was written reads");
            assert_eq!(again.encode(&layout), Ok(written));
            assert!(read.output_hidden_states.len() <= layout.hidden_bytes());
        }
    });
}
