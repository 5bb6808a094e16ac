//! Memory that a device may reach: protection domains and regions.
//!
//! A region's memory lives as long as the region: the region owns host memory, the kernel holds a
//! dma-buf. Ranges of a region borrow it.

mod host;
mod range;

pub use host::HostMemory;
pub(crate) use range::LKey;
pub use range::{LocalRange, RKey, RangeError, RemoteAddr, RemoteRegion};

use crate::device::Device;
use crate::error::CallError;
use crate::ffi;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

/// Host memory that can be registered.
///
/// # Safety
/// From the first call of `range` until the value is dropped, also when it is moved:
/// * every byte of the range is mapped in this process, readable, and writable if it is to be
///   registered for remote writes;
/// * no Rust reference to these bytes exists while a device may touch them: a peer writes at any
///   time, as another process does to shared memory. Use raw copies and atomics.
pub unsafe trait Registrable: Send + Sync + 'static {
    /// First byte, and the number of bytes.
    fn range(&self) -> (NonNull<u8>, usize);
}

/// How a region may be used. It can always be read for local writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Peers that know its key may write to it.
    pub remote_write: bool,
    /// The bus may reorder a message's bytes; needed for full speed on some machines. Bytes are
    /// then complete only after their completion or immediate was polled.
    pub relaxed_ordering: bool,
}

/// GPU memory as its driver exports it.
#[derive(Clone, Copy, Debug)]
pub struct DmaBuf<'a> {
    pub file: BorrowedFd<'a>,
    /// Where the range begins in the file.
    pub offset: u64,
    pub len: usize,
    /// The address by which ranges of the region are named; usually the GPU's own.
    pub addr: u64,
}

/// Queue pairs and regions work together only within one domain. Cheap to clone; freed with the
/// last clone and everything made in it.
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Domain>,
}

struct Domain {
    raw: NonNull<ffi::Pd>,
    device: Device,
}

/// Registered memory. Dropping it ends every access by the device, then frees the memory.
pub struct MemoryRegion {
    raw: NonNull<ffi::Mr>,
    domain: ProtectionDomain,
    addr: u64,
    len: u64,
    relaxed_ordering: bool,
    /// `None` over a dma-buf, which the processor may be unable to read.
    host_memory: ManuallyDrop<Option<Box<dyn Registrable>>>,
}

// SAFETY: libibverbs allows any thread to use a domain.
unsafe impl Send for Domain {}
// SAFETY: as above, at the same time: the library and its providers lock what they share.
unsafe impl Sync for Domain {}
// SAFETY: a region is only read after its registration (keys, bounds), and may be given up on any
// thread; the memory it owns is Send and Sync by the trait's bounds.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

// === impl ProtectionDomain ===

impl ProtectionDomain {
    /// # Errors
    /// The device has no more domains, or does not answer.
    pub fn new(device: &Device) -> Result<Self, CallError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.api().ibv_alloc_pd)(device.raw()) };
        let raw = NonNull::new(raw);
        let raw = raw.ok_or_else(|| CallError::last("ibv_alloc_pd", device.name()))?;
        let device = device.clone();
        Ok(Self {
            inner: Arc::new(Domain { raw, device }),
        })
    }

    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    pub(crate) fn raw(&self) -> *mut ffi::Pd {
        self.inner.raw.as_ptr()
    }

    /// Registers all of the host memory.
    ///
    /// # Errors
    /// The memory cannot be pinned, or the device cannot hold another region.
    pub fn register(
        &self,
        memory: impl Registrable,
        registration: Registration,
    ) -> Result<MemoryRegion, CallError> {
        let (addr, len) = memory.range();
        // SAFETY: the trait's contract: the range is mapped while `memory` lives, and the region
        // made of it owns `memory`.
        let (raw, relaxed_ordering) = unsafe { self.register_raw(addr, len, registration) }?;
        Ok(MemoryRegion {
            raw,
            domain: self.clone(),
            addr: addr.as_ptr() as u64,
            len: len as u64,
            relaxed_ordering,
            host_memory: ManuallyDrop::new(Some(Box::new(memory))),
        })
    }

    /// The region, and whether it accepted relaxed ordering.
    ///
    /// # Safety
    /// The range stays mapped until the region is given up.
    unsafe fn register_raw(
        &self,
        addr: NonNull<u8>,
        len: usize,
        registration: Registration,
    ) -> Result<(NonNull<ffi::Mr>, bool), CallError> {
        let device = self.device();
        let start = addr.as_ptr().cast();
        if let (true, Some(reg_mr_iova2)) =
            (registration.relaxed_ordering, device.api().ibv_reg_mr_iova2)
        {
            let flags = access_flags(registration) | ffi::IBV_ACCESS_RELAXED_ORDERING;
            let iova = addr.as_ptr() as u64;
            // SAFETY: the domain is open, and the caller keeps the range mapped.
            let raw = unsafe { reg_mr_iova2(self.raw(), start, len, iova, flags) };
            if let Some(raw) = NonNull::new(raw) {
                return Ok((raw, true));
            }
        }
        let flags = access_flags(registration).cast_signed();
        // SAFETY: as above.
        let raw = unsafe { (device.api().ibv_reg_mr)(self.raw(), start, len, flags) };
        let object = || format!("{} over {len} bytes at {start:p}", device.name());
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("ibv_reg_mr", object()))?;
        Ok((raw, false))
    }

    /// Registers a range of a dma-buf. The kernel holds the buffer while the region lives, so the
    /// file may be closed.
    ///
    /// # Errors
    /// Library, kernel or device lack support, or the range exceeds the buffer.
    pub fn register_dma_buf(
        &self,
        buffer: DmaBuf<'_>,
        registration: Registration,
    ) -> Result<MemoryRegion, CallError> {
        const CALL: &str = "ibv_reg_dmabuf_mr";
        let device = self.device();
        let Some(reg_dmabuf_mr) = device.api().ibv_reg_dmabuf_mr else {
            return Err(CallError::new(CALL, device.name(), libc::EOPNOTSUPP));
        };
        let DmaBuf {
            file,
            offset,
            len,
            addr,
        } = buffer;
        if addr.checked_add(len as u64).is_none() {
            return Err(CallError::new(CALL, device.name(), libc::EINVAL));
        }
        let register = |flags: u32| {
            let file = file.as_raw_fd();
            // SAFETY: the domain is open, and the file is open during the call. No memory of this
            // process is named: `addr` is only what requests will call the range by.
            let raw =
                unsafe { reg_dmabuf_mr(self.raw(), offset, len, addr, file, flags.cast_signed()) };
            NonNull::new(raw).ok_or_else(|| CallError::last(CALL, device.name()))
        };
        let plain = access_flags(registration);
        let relaxed = if registration.relaxed_ordering {
            register(plain | ffi::IBV_ACCESS_RELAXED_ORDERING).ok()
        } else {
            None
        };
        let (raw, relaxed_ordering) = match relaxed {
            Some(raw) => (raw, true),
            None => (register(plain)?, false),
        };
        Ok(MemoryRegion {
            raw,
            domain: self.clone(),
            addr,
            len: len as u64,
            relaxed_ordering,
            host_memory: ManuallyDrop::new(None),
        })
    }

    /// Whether dma-bufs are supported: with an invalid file, the call fails because of the file
    /// where they are, and because of the call where they are not.
    pub(crate) fn takes_dma_buf(&self) -> bool {
        let Some(reg_dmabuf_mr) = self.device().api().ibv_reg_dmabuf_mr else {
            return false;
        };
        // SAFETY: the domain is open; file -1 is never open, so nothing is registered.
        let raw = unsafe { reg_dmabuf_mr(self.raw(), 0, PAGE_BYTES, 0, -1, 0) };
        let error = CallError::last("ibv_reg_dmabuf_mr", "");
        raw.is_null() && error.errno == rustix::io::Errno::BADF
    }

    /// Whether memory is accepted that need not be pinned.
    pub(crate) fn takes_on_demand(&self, page: &Arc<HostMemory>) -> bool {
        let (addr, len) = page.range();
        let flags = ffi::IBV_ACCESS_ON_DEMAND.cast_signed();
        let api = self.device().api();
        // SAFETY: the domain is open; `page` outlives the region, which ends right below.
        let raw = unsafe { (api.ibv_reg_mr)(self.raw(), addr.as_ptr().cast(), len, flags) };
        if raw.is_null() {
            return false;
        }
        // SAFETY: just registered, and used by nothing.
        unsafe { (api.ibv_dereg_mr)(raw) };
        true
    }
}

fn access_flags(registration: Registration) -> u32 {
    if registration.remote_write {
        // The specification requires local writes where remote ones are allowed.
        ffi::IBV_ACCESS_REMOTE_WRITE | ffi::IBV_ACCESS_LOCAL_WRITE
    } else {
        0
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: allocated once; all objects made in it hold a clone of the domain, so they are
        // gone. A failure leaves the kernel's part until the process ends.
        unsafe { (self.device.api().ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

// === impl MemoryRegion ===

impl MemoryRegion {
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Whether relaxed ordering was accepted.
    pub fn has_relaxed_ordering(&self) -> bool {
        self.relaxed_ordering
    }

    pub(crate) fn lkey(&self) -> LKey {
        // SAFETY: the library's structure lives until the region is given up in `drop`.
        LKey(unsafe { self.raw.as_ref() }.lkey)
    }

    /// Whether the processor may read it, as inline data needs.
    pub(crate) fn is_host_memory(&self) -> bool {
        self.host_memory.is_some()
    }

    /// What a peer needs to write here.
    pub fn remote(&self) -> RemoteRegion {
        // SAFETY: the library's structure lives until the region is given up in `drop`.
        let rkey = RKey(unsafe { self.raw.as_ref() }.rkey);
        RemoteRegion {
            addr: self.addr,
            len: self.len,
            rkey,
        }
    }

    /// Bytes `offset..offset + len`, to be written to a peer.
    ///
    /// # Errors
    /// They exceed the region.
    pub fn range(&self, offset: u64, len: u32) -> Result<LocalRange<'_>, RangeError> {
        range::check(offset, u64::from(len), self.len)?;
        Ok(LocalRange {
            addr: self.addr + offset,
            len,
            region: self,
        })
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("device", &self.domain.device().name())
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let api = self.domain.device().api();
        // SAFETY: registered once, and ranges of it, which borrow it, are gone. Requests that are
        // still with the device then fail with a status.
        let code = unsafe { (api.ibv_dereg_mr)(self.raw.as_ptr()) };
        if code == 0 {
            // SAFETY: dropped here and nowhere else. The device no longer reaches the memory.
            unsafe { ManuallyDrop::drop(&mut self.host_memory) };
        }
        // Otherwise the device may still write there: the memory is leaked, so that it is never
        // reused.
    }
}

#[cfg(test)]
mod tests;
