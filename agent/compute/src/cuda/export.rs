//! Device memory as a KV transfer uses it: copied beside the stream, shared with other processes, named
//! to NICs.

use super::driver::{Driver, DriverError, IpcHandle};
use super::memory::CudaBuffer;
use crate::buffer::DeviceBuffer;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Granularity of dma-bufs.
pub(super) const EXPORT_GRANULE: usize = 64 << 10;

/// A whole exportable allocation, or a peer's.
#[derive(Debug)]
pub struct CudaMemory {
    driver: Arc<dyn Driver>,
    origin: Origin,
    addr: u64,
    len: usize,
}

#[derive(Debug)]
enum Origin {
    /// Kept alive.
    Own(#[expect(dead_code, reason = "it is held, not looked at")] CudaBuffer),
    Peer,
}

// === impl CudaMemory ===

impl CudaMemory {
    pub(super) fn of(driver: &Arc<dyn Driver>, buffer: &CudaBuffer) -> Self {
        Self {
            driver: Arc::clone(driver),
            addr: buffer.addr(),
            len: buffer.size_bytes(),
            origin: Origin::Own(buffer.clone()),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// On the device.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Copies bytes out, and waits for them.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// When the range leaves the memory, here and below.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DriverError> {
        let from = self.at(offset, bytes.len());
        // SAFETY: both ranges were checked or are borrowed, and the copy is waited for.
        unsafe {
            self.driver
                .side_copy(bytes.as_mut_ptr() as u64, from, bytes.len())
        }?;
        self.driver.sync_side_stream()
    }

    /// Copies bytes in, and waits until they are there.
    ///
    /// # Errors
    /// The driver's.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DriverError> {
        let to = self.own_at(offset, bytes.len());
        // SAFETY: as for `read`.
        unsafe {
            self.driver
                .side_copy(to, bytes.as_ptr() as u64, bytes.len())
        }?;
        self.driver.sync_side_stream()
    }

    /// Begins a copy from memory of the same driver; see [`Self::sync_side_stream`].
    ///
    /// # Errors
    /// The driver's.
    pub fn copy_from(
        &self,
        offset: u64,
        src: &Self,
        src_offset: u64,
        len: usize,
    ) -> Result<(), DriverError> {
        let (to, from) = (self.own_at(offset, len), src.at(src_offset, len));
        // SAFETY: both ranges were checked; freeing and closing either waits for copies.
        unsafe { self.driver.side_copy(to, from, len) }
    }

    /// Waits for the copies that were begun.
    ///
    /// # Errors
    /// The driver's.
    pub fn sync_side_stream(&self) -> Result<(), DriverError> {
        self.driver.sync_side_stream()
    }

    /// What another process on this host opens it by.
    ///
    /// # Errors
    /// The driver's.
    pub fn share(&self) -> Result<IpcHandle, DriverError> {
        self.driver.ipc_handle(self.addr)
    }

    /// A peer's memory of `len` bytes, to copy from.
    ///
    /// # Errors
    /// The driver's; where the peer's memory is smaller, too.
    pub fn open_shared(&self, handle: &IpcHandle, len: usize) -> Result<Self, DriverError> {
        Ok(Self {
            driver: Arc::clone(&self.driver),
            addr: self.driver.open_ipc(handle, len)?,
            len,
            origin: Origin::Peer,
        })
    }

    /// For a NIC.
    ///
    /// # Errors
    /// The driver's.
    pub fn dma_buf(&self) -> Result<OwnedFd, DriverError> {
        let bytes = self.len.next_multiple_of(EXPORT_GRANULE);
        self.driver.dma_buf(self.addr, bytes)
    }

    /// Makes what NICs have written visible to kernels.
    ///
    /// # Errors
    /// The driver's.
    pub fn flush(&self) -> Result<(), DriverError> {
        self.driver.flush_remote_writes()
    }

    fn at(&self, offset: u64, len: usize) -> u64 {
        let end = offset.saturating_add(len as u64);
        assert!(
            end <= self.len as u64,
            "bytes {offset}..{end} of {}",
            self.len
        );
        self.addr + offset
    }

    fn own_at(&self, offset: u64, len: usize) -> u64 {
        assert!(
            matches!(self.origin, Origin::Own(_)),
            "a peer's memory is never written"
        );
        self.at(offset, len)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if matches!(self.origin, Origin::Peer) {
            // SAFETY: it is from `open_ipc`; closing waits for the copies from it.
            unsafe { self.driver.close_ipc(self.addr) };
        }
    }
}
