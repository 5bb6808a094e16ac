//! Facts about the files of handles.

use super::*;
use crate::memory::Region;
use crate::tests::heap_device::HeapDevice;

/// Longer than a handle's magic.
const HANDLE: &[u8] = b"pdserve-device-1 and what a device makes of it";

fn sealed(bytes: &[u8]) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("test", flags).unwrap());
    file.write_all(bytes).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

fn refused(bytes: &[u8]) -> String {
    SharedFile::of(sealed(bytes)).unwrap_err().to_string()
}

#[test]
fn a_handle_is_read_back_from_its_file() {
    for handle in [vec![], vec![1, 2, 3], vec![9; HANDLE_BYTES_MAX]] {
        let device = HeapDevice::default();
        device.share_as(&handle);
        let region = device.allocate(64);
        let file = handle_file(region.as_device().unwrap()).unwrap();
        assert!(matches!(SharedFile::of(file), Ok(SharedFile::Handle(read)) if read == handle));
    }
}

#[test]
fn a_handle_that_is_too_long_gets_no_file() {
    let device = HeapDevice::default();
    device.share_as(&[9; HANDLE_BYTES_MAX + 1]);
    let region = device.allocate(64);
    let error = handle_file(region.as_device().unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a device's handle has 257 bytes, more than 256"
    );
}

#[test]
fn files_that_hold_no_handle_are_refused() {
    let mut long = MAGIC.to_vec();
    long.resize(MAGIC.len() + HANDLE_BYTES_MAX + 1, 9);
    let huge = [&MAGIC[..], &[9; 1 << 20]].concat();
    for (bytes, why) in [
        (&long[..], "its handle has more than 256 bytes"),
        (&huge, "its handle has more than 256 bytes"),
        (&MAGIC[..15], "its file holds no handle"),
        (b"", "its file holds no handle"),
        (b"pdserve-device-2 and more", "its file holds no handle"),
    ] {
        let said = format!("cannot open a peer's device memory: {why}");
        assert_eq!(refused(bytes), said);
    }
}

#[test]
fn memory_that_looks_like_a_handle_is_memory() {
    let region = Region::allocate("test", HANDLE.len()).unwrap();
    region.write(0, HANDLE).unwrap();
    let file = region.as_host().unwrap().file().unwrap();
    let file = file.try_clone_to_owned().unwrap();
    let opened = Region::open_shared(file, HANDLE.len(), None).unwrap();
    let mut bytes = vec![0; HANDLE.len()];
    opened.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, HANDLE);
}

#[test]
fn memory_cannot_be_sealed_as_a_handle_is() {
    let region = Region::allocate("test", 64).unwrap();
    let file = region.as_host().unwrap().file().unwrap();
    assert!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_err());
}

#[test]
fn host_and_device_do_not_open_each_others_memory() {
    let own = HeapDevice::default().allocate(64);
    let handle = handle_file(own.as_device().unwrap()).unwrap();
    let error = Region::open_shared(handle, 64, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "host memory is not copied to from a peer's device memory"
    );
    let host = Region::allocate("test", 64).unwrap();
    let file = host
        .as_host()
        .unwrap()
        .file()
        .unwrap()
        .try_clone_to_owned()
        .unwrap();
    let error = Region::open_shared(file, 64, own.as_device()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "device memory is not copied to from a peer's host memory"
    );
}
