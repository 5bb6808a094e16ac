//! Facts about regions.

use super::*;

#[test]
fn bytes_written_are_read_back_through_a_second_mapping() {
    let region = Region::allocate("test", 4096).unwrap();
    region.write(100, b"kv").unwrap();
    let other = Region::map_read_only(region.export().try_clone_to_owned().unwrap(), 4096).unwrap();
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
