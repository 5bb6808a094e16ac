//! Memory of a device: only its driver reaches it, so it is handed over as a trait. On one host a
//! peer opens it by a handle, which travels in a file as host memory does; a NIC reaches it through
//! a dma-buf; for tcp it is copied to the host and back.

use super::{RegionError, failed};
use rustix::fs::{MemfdFlags, SealFlags};
use std::any::Any;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Device memory as this crate uses it; all that a rank has is on one device. Offsets and lengths are checked
/// before every call. Errors name the driver's call and its reason.
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

    /// Waits until all copies to memory of this device that were begun have ended; after an error none runs
    /// any more either.
    ///
    /// # Errors
    /// The driver's.
    fn settle(&self) -> Result<(), String>;

    /// What a process of the same user on this host opens this memory by, at most 256 bytes.
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

    /// Makes what NICs have written to memory of this device visible to it.
    ///
    /// # Errors
    /// The driver's.
    fn flush(&self) -> Result<(), String>;
}

const HANDLE_BYTES_MAX: usize = 256;
/// Begins the file of a handle.
const MAGIC: &[u8; 16] = b"pdserve-device-1";

/// What the file is that a peer hands over for a region. A handle's is sealed against writing; memory's
/// cannot be, because its owner has mapped it for writing.
#[derive(Debug)]
pub(super) enum SharedFile {
    Memory(OwnedFd),
    Handle(Vec<u8>),
}

// === impl SharedFile ===

impl SharedFile {
    /// # Errors
    /// The file is sealed as a handle's and holds none.
    pub(super) fn of(file: OwnedFd) -> Result<Self, RegionError> {
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::WRITE) {
            return Ok(Self::Memory(file));
        }
        let refused = |reason: String| failed("open a peer's")(reason);
        let mut bytes = vec![0; MAGIC.len() + HANDLE_BYTES_MAX + 1];
        let read = File::from(file).read_at(&mut bytes, 0);
        let read = read.map_err(|error| refused(format!("its handle cannot be read: {error}")))?;
        match bytes[..read].strip_prefix(MAGIC) {
            Some(handle) if handle.len() > HANDLE_BYTES_MAX => Err(refused(format!(
                "its handle has more than {HANDLE_BYTES_MAX} bytes"
            ))),
            Some(handle) => Ok(Self::Handle(handle.to_vec())),
            None => Err(refused("its file holds no handle".to_owned())),
        }
    }
}

/// A file that holds the memory's handle.
///
/// # Errors
/// The device's, its handle is too long, or the system refuses the file.
pub(crate) fn handle_file(memory: &dyn DeviceMemory) -> io::Result<OwnedFd> {
    let handle = memory.share().map_err(io::Error::other)?;
    if handle.len() > HANDLE_BYTES_MAX {
        let bytes = handle.len();
        let why = format!("a device's handle has {bytes} bytes, more than {HANDLE_BYTES_MAX}");
        return Err(io::Error::other(why));
    }
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

#[cfg(test)]
mod tests;
