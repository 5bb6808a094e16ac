//! Memory of a device: only its driver reaches it, so it is handed over as a trait. On one host a
//! peer opens it by a handle, which travels in a file as host memory does; a NIC reaches it through
//! a dma-buf; for tcp it is copied to the host and back.

use super::RegionError;
use rustix::fs::{MemfdFlags, SealFlags};
use std::any::Any;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Device memory as this crate uses it. Offsets and lengths are checked before every call. Errors name
/// the driver's call and its reason.
pub trait DeviceMemory: Any + Debug + Send + Sync + 'static {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// On the device, as the driver of a NIC names it too.
    fn addr(&self) -> u64;

    /// Copies bytes out, and waits for them.
    ///
    /// # Errors
    /// The driver's.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), String>;

    /// Copies bytes in, and waits until they are there.
    ///
    /// # Errors
    /// The driver's.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), String>;

    /// Begins to copy from `src`, which came from [`Self::open_shared`] of this memory; see
    /// [`Self::settle`].
    ///
    /// # Errors
    /// The driver's.
    fn copy_from(
        &self,
        offset: u64,
        src: &dyn DeviceMemory,
        src_offset: u64,
        len: usize,
    ) -> Result<(), String>;

    /// Waits until all copies that were begun have ended.
    ///
    /// # Errors
    /// The driver's.
    fn settle(&self) -> Result<(), String>;

    /// What a process of the same user on this host opens this memory by, at most
    /// [`HANDLE_BYTES_MAX`].
    ///
    /// # Errors
    /// The driver's.
    fn share(&self) -> Result<Vec<u8>, String>;

    /// A peer's memory of `len` bytes, to copy from.
    ///
    /// # Errors
    /// The driver's: no such memory, or on a device that this one does not reach.
    fn open_shared(&self, handle: &[u8], len: usize) -> Result<Arc<dyn DeviceMemory>, String>;

    /// For a NIC.
    ///
    /// # Errors
    /// The driver's.
    fn dma_buf(&self) -> Result<OwnedFd, String>;

    /// Makes what a NIC has written visible to the device.
    ///
    /// # Errors
    /// The driver's.
    fn flush(&self) -> Result<(), String>;
}

pub(crate) const HANDLE_BYTES_MAX: usize = 256;
/// Begins the file of a handle.
const MAGIC: &[u8; 16] = b"pdserve-device-1";

/// A file that holds the memory's handle.
pub(crate) fn handle_file(memory: &dyn DeviceMemory) -> io::Result<OwnedFd> {
    let handle = memory.share().map_err(io::Error::other)?;
    assert!(
        handle.len() <= HANDLE_BYTES_MAX,
        "a handle of {} bytes",
        handle.len()
    );
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("pd-handle", flags)?);
    file.write_all(MAGIC)?;
    file.write_all(&handle)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(file.into())
}

/// The handle in a peer's file; `None` where the file is memory itself.
pub(crate) fn handle_in(file: OwnedFd) -> Result<Result<Vec<u8>, OwnedFd>, RegionError> {
    let file = File::from(file);
    let system = |source: io::Error| RegionError::Device {
        call: "read the handle",
        reason: source.to_string(),
    };
    let len = file.metadata().map_err(system)?.len();
    let head = MAGIC.len() as u64;
    if len <= head || len > head + HANDLE_BYTES_MAX as u64 {
        return Ok(Err(file.into()));
    }
    let mut bytes = vec![0; usize::try_from(len).expect("a handle is short")];
    file.read_exact_at(&mut bytes, 0).map_err(system)?;
    match bytes.strip_prefix(MAGIC) {
        Some(handle) => Ok(Ok(handle.to_vec())),
        None => Ok(Err(file.into())),
    }
}
