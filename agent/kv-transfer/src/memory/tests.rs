//! Facts about regions.

use super::*;
use crate::tests::heap_device::HeapDevice;

#[test]
fn bytes_written_are_read_back_through_a_second_mapping() {
    let region = Region::allocate("test", 4096).unwrap();
    region.write(100, b"kv").unwrap();
    let other = Region::map_read_only(
        region
            .as_host()
            .unwrap()
            .file()
            .unwrap()
            .try_clone_to_owned()
            .unwrap(),
        4096,
    )
    .unwrap();
    let mut bytes = [0; 2];
    other.read(100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kv");
}

#[test]
fn a_range_beyond_the_region_is_refused() {
    let region = Region::allocate("test", 4096).unwrap();
    assert!(region.write(4095, b"kv").is_err());
    assert!(region.write(u64::MAX, b"kv").is_err());
    assert!(region.read(4096, &mut [0]).is_err());
}

#[test]
fn a_file_that_could_shrink_is_not_mapped() {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    // Without ALLOW_SEALING the kernel seals the file against seals, not against shrinking.
    assert!(matches!(
        Region::map_read_only(file, 4096),
        Err(RegionError::NotSealed)
    ));
}

#[test]
fn a_file_shorter_than_stated_is_refused() {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    assert!(matches!(
        Region::map(file, 4096),
        Err(RegionError::FileTooShort { .. })
    ));
}

#[test]
fn a_region_lies_between_guard_pages() {
    let region = Region::allocate("test", 5000).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |word: &str| usize::from_str_radix(word, 16).unwrap();
    let ranges: Vec<(usize, usize, &str)> = maps
        .lines()
        .map(|line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            (hex(start), hex(end), &rest[..4])
        })
        .collect();
    let at = ranges
        .iter()
        .position(|(start, ..)| *start == region.as_host().unwrap().mapping.addr.as_ptr() as usize);
    let at = at.expect("the region has a line of its own");
    let (before, own, after) = (ranges[at - 1], ranges[at], ranges[at + 1]);
    assert_eq!(own.2, "rw-s");
    assert_eq!((before.1, before.2), (own.0, "---p"));
    assert_eq!((after.0, after.2), (own.1, "---p"));
}

#[test]
fn memory_of_different_kinds_is_not_copied() {
    let host = Region::allocate("test", 64).unwrap();
    let device = HeapDevice::default().allocate(64);
    for (to, from) in [(&host, &device), (&device, &host)] {
        let copied = to.copy_from(0, from, 0, 8);
        assert!(matches!(copied, Err(RegionError::OtherKind { .. })));
    }
}

#[test]
fn a_range_beyond_a_devices_region_is_refused() {
    let device = HeapDevice::default();
    let (region, other) = (device.allocate(64), device.allocate(64));
    assert!(region.write(63, b"kv").is_err());
    assert!(region.read(u64::MAX, &mut [0]).is_err());
    assert!(region.copy_from(60, &other, 0, 8).is_err());
    assert!(region.copy_from(0, &other, 60, 8).is_err());
    assert_eq!(device.in_flight(), 0);
}

#[test]
fn private_memory_is_used_where_it_lies_and_lives_as_long_as_its_region() {
    let owner = Region::allocate("test", 4096).unwrap();
    let region = Region::private(Arc::new(owner.as_host().unwrap().clone()));
    owner.write(4000, b"kv").unwrap();
    drop(owner);
    let mut bytes = [0; 2];
    region.read(4000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kv");
    assert!(region.write(4095, b"kv").is_err());
    // Nothing that could be handed to another process.
    assert!(region.as_host().unwrap().file().is_none());
}
