//! Ranges, and memory of our own.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_remote_range_never_leaves_its_region(addr: u64, len: u64, offset: u64, count: u64) {
        let region = RemoteRegion { addr, len, rkey: RKey(1) };
        // Wider numbers cannot wrap.
        let [addr, len, wide_offset, wide_count] = [addr, len, offset, count].map(u128::from);
        let inside = wide_offset + wide_count <= len
            && addr + wide_offset + wide_count <= u128::from(u64::MAX);
        match region.at(offset, count) {
            Ok(at) => prop_assert!(inside && u128::from(at.addr) == addr + wide_offset),
            Err(error) => prop_assert!(!inside && error.offset == offset),
        }
    }
}

#[test]
fn a_range_error_says_which_bytes_and_of_how_many() {
    let region = RemoteRegion {
        addr: 4096,
        len: 100,
        rkey: RKey(1),
    };
    let error = region.at(90, 11).expect_err("one byte too many");
    assert_eq!(
        error.to_string(),
        "bytes 90..+11 are not within a region of 100 bytes"
    );
    assert!(region.at(100, 0).is_ok(), "no bytes at the end are inside");
}

#[test]
fn host_memory_is_zeroed_aligned_and_keeps_what_is_written() {
    let memory = Arc::new(HostMemory::zeroed(5000));
    let (addr, len) = memory.range();
    assert_eq!((addr.as_ptr() as usize % PAGE_BYTES, len), (0, 5000));
    memory.write(4990, &[7; 10]).expect("it fits");
    let mut bytes = [1; 12];
    memory.read(4988, &mut bytes).expect("it fits");
    assert_eq!(bytes, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    assert!(memory.write(4991, &[7; 10]).is_err());
    assert!(memory.read(usize::MAX, &mut bytes).is_err());
}

#[test]
fn remote_writes_need_local_ones() {
    assert_eq!(access_flags(Registration::default()), 0);
    let open = Registration {
        remote_write: true,
        relaxed_ordering: false,
    };
    assert_eq!(access_flags(open), 3);
}
