//! Facts about metadata rows in memory.

use super::*;
use pd_protocol::layout::KvDtype;

fn mk_buffers() -> MetadataBuffers {
    let layout = MetadataLayout {
        hidden_size: 0,
        hidden_dtype: KvDtype::Float32,
    };
    MetadataBuffers::allocate(layout, 2).unwrap()
}

#[test]
fn a_row_is_read_by_its_own_room_only() {
    let buffers = mk_buffers();
    let room = BootstrapRoom::new(5).unwrap();
    buffers.write_row(1, &MetadataRow::new(room, 42)).unwrap();
    assert_eq!(buffers.read_row(1, room).unwrap().output_ids, [42]);
    assert!(buffers.read_row(1, BootstrapRoom::new(6).unwrap()).is_err());
    buffers.clear_row(1).unwrap();
    assert!(buffers.read_row(1, room).is_err());
}

#[test]
fn a_row_beyond_the_last_is_refused() {
    let buffers = mk_buffers();
    let room = BootstrapRoom::new(5).unwrap();
    assert!(buffers.write_row(2, &MetadataRow::new(room, 1)).is_err());
}

#[test]
fn rows_are_conserved() {
    let mut rows = MetadataIndexAllocator::new(2);
    let (first, second) = (rows.alloc().unwrap(), rows.alloc().unwrap());
    assert_eq!((first, second, rows.alloc()), (0, 1, None));
    rows.free(first);
    assert_eq!((rows.available(), rows.total()), (1, 2));
}
