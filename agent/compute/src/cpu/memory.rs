//! Host memory of the CPU backend: page-aligned, zeroed on first touch, optionally a memfd that a
//! peer process can map.
//!
//! Only commands on the queue look inside (and the transfer engine, by address, at pages that no
//! command uses meanwhile: the page owner's promise).

mod access;

use crate::buffer::{DeviceBuffer, Extent, HostBytes};
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::export::{ExportHandle, MemoryExport, Reach};
pub(super) use access::{Dst, Src};
use bytemuck::{AnyBitPattern, NoUninit};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// From this size on the kernel is asked for huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A range of elements of one mapping.
#[derive(Clone)]
pub struct CpuBuffer {
    mapping: Arc<Mapping>,
    dtype: DType,
    offset_bytes: usize,
    len: usize,
}

/// One `mmap`, unmapped on drop.
struct Mapping {
    addr: NonNull<u8>,
    len_bytes: usize,
    memfd: Option<OwnedFd>,
    name: Box<str>,
}

// SAFETY: the mapping is plain memory owned by this value; access from several threads goes through
// `Src` and `Dst`, whose users keep to one command at a time and disjoint ranges within it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` alone reads nothing.
unsafe impl Sync for Mapping {}

/// Memory of a buffer, for a KV transfer of this process; mapped as long as it is held.
#[derive(Clone)]
pub struct HostMemory(Arc<Mapping>);

// SAFETY: the mapping is readable and writable and stays where it is until the last handle drops. Commands
// make references to elements they read or write alone; the engine's fences keep a transfer away from those.
unsafe impl pd_verbs::Registrable for HostMemory {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.0.addr, self.0.len_bytes)
    }
}

impl std::fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.0.name, self.0.len_bytes)
    }
}

// === impl Mapping ===

impl Mapping {
    fn new(name: &str, len_bytes: usize, reach: Reach) -> Result<Self, ComputeError> {
        let oom = |call: &'static str| ComputeError::OutOfMemory {
            call,
            what: name.to_owned(),
            bytes: len_bytes,
            reason: io::Error::last_os_error().to_string(),
        };
        let mapped_bytes = len_bytes.max(1);
        let memfd = match reach {
            Reach::Process => None,
            Reach::Host => Some(memfd_of(mapped_bytes).map_err(oom)?),
        };
        let (flags, fd) = match &memfd {
            Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice; `fd` is open or -1.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_NORESERVE,
                fd,
                0,
            )
        };
        if addr == libc::MAP_FAILED {
            return Err(oom("mmap"));
        }
        if mapped_bytes >= HUGE_PAGE_BYTES {
            // SAFETY: the range is the mapping just made. Advice may be declined, which is fine.
            unsafe { libc::madvise(addr, mapped_bytes, libc::MADV_HUGEPAGE) };
        }
        let addr = NonNull::new(addr.cast()).expect("a mapping that succeeded is not at null");
        Ok(Self {
            addr,
            len_bytes: mapped_bytes,
            memfd,
            name: name.into(),
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one `mmap` returned, and no handle to it is left.
        unsafe { libc::munmap(self.addr.as_ptr().cast(), self.len_bytes) };
    }
}

/// A memfd of `len_bytes` that takes seals: a peer maps it only if it cannot shrink. On failure the
/// name of the call, errno left in place.
fn memfd_of(len_bytes: usize) -> Result<OwnedFd, &'static str> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe { libc::memfd_create(c"pd-kv".as_ptr(), flags) };
    if fd < 0 {
        return Err("memfd_create");
    }
    // SAFETY: `fd` is open and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = libc::off_t::try_from(len_bytes).map_err(|_| "ftruncate")?;
    // SAFETY: `fd` is open.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), len) } != 0 {
        return Err("ftruncate");
    }
    Ok(fd)
}

// === impl CpuBuffer ===

impl CpuBuffer {
    pub(super) fn alloc(
        name: &str,
        dtype: DType,
        len: usize,
        reach: Reach,
    ) -> Result<Self, ComputeError> {
        let len_bytes =
            len.checked_mul(dtype.size_bytes())
                .ok_or_else(|| ComputeError::OutOfMemory {
                    call: "mmap",
                    what: name.to_owned(),
                    bytes: usize::MAX,
                    reason: format!("{len} elements exceed the address space"),
                })?;
        let mapping = Arc::new(Mapping::new(name, len_bytes, reach)?);
        Ok(Self {
            mapping,
            dtype,
            offset_bytes: 0,
            len,
        })
    }

    pub(super) fn export(&self) -> Result<MemoryExport, ComputeError> {
        let handle = match &self.mapping.memfd {
            None => ExportHandle::Private(HostMemory(self.mapping.clone())),
            Some(memfd) => {
                let file = memfd.as_fd().try_clone_to_owned();
                ExportHandle::MemFd(file.map_err(|e| ComputeError::OutOfMemory {
                    call: "dup",
                    what: self.mapping.name.to_string(),
                    bytes: self.mapping.len_bytes,
                    reason: e.to_string(),
                })?)
            }
        };
        Ok(MemoryExport {
            addr: self.mapping.addr.as_ptr() as u64,
            len_bytes: self.mapping.len_bytes,
            handle,
        })
    }

    /// The first `len` elements, to be read by a command.
    pub(super) fn src<T: AnyBitPattern>(&self, what: &str, len: usize) -> Src<T> {
        Src::new(self.checked::<T>(what, len))
    }

    /// The first `len` elements, to be written by a command.
    pub(super) fn dst<T: AnyBitPattern + NoUninit>(&self, what: &str, len: usize) -> Dst<T> {
        Dst::new(self.checked::<T>(what, len))
    }

    /// The whole buffer as bytes, to be read by a command.
    pub(super) fn src_bytes(&self) -> Src<u8> {
        Src::new(self.as_bytes())
    }

    /// The whole buffer as bytes, to be written by a command.
    pub(super) fn dst_bytes(&self) -> Dst<u8> {
        Dst::new(self.as_bytes())
    }

    /// A copy of the bytes. Called on the queue, where one command runs at a time.
    pub(super) fn to_host(&self) -> HostBytes {
        let mut host = HostBytes::zeroed(self.size_bytes());
        let bytes = self.src_bytes();
        // SAFETY: on the queue, so nothing writes the buffer meanwhile.
        host.as_bytes_mut()
            .copy_from_slice(unsafe { bytes.slice() });
        host
    }

    fn checked<T>(&self, what: &str, len: usize) -> Self {
        assert!(
            self.dtype.size_bytes() == size_of::<T>() && self.len >= len,
            "{what}: {len} elements of {} bytes needed, {:?} holds {} of {:?}",
            size_of::<T>(),
            self.mapping.name,
            self.len,
            self.dtype,
        );
        Self {
            len,
            ..self.clone()
        }
    }

    fn as_bytes(&self) -> Self {
        Self {
            dtype: DType::U8,
            len: self.size_bytes(),
            ..self.clone()
        }
    }

    fn ptr<T>(&self) -> *mut T {
        // SAFETY: the offset lies inside the mapping, by `alloc` and `slice`.
        unsafe { self.mapping.addr.as_ptr().add(self.offset_bytes).cast() }
    }
}

impl DeviceBuffer for CpuBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range {range:?} exceeds the {} elements of {:?}",
            self.len,
            self.mapping.name
        );
        Self {
            offset_bytes: self.offset_bytes + range.start * self.dtype.size_bytes(),
            len: range.len(),
            ..self.clone()
        }
    }

    fn extent(&self) -> Extent {
        Extent {
            allocation: Arc::as_ptr(&self.mapping).addr(),
            bytes: self.offset_bytes..self.offset_bytes + self.size_bytes(),
        }
    }
}

impl std::fmt::Debug for CpuBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            mapping,
            dtype,
            offset_bytes,
            len,
        } = self;
        write!(
            f,
            "CpuBuffer({:?}, {len} of {dtype:?} at byte {offset_bytes})",
            mapping.name
        )
    }
}
