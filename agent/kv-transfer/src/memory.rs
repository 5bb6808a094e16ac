//! Registered memory: shared mappings that the engine, this process's transfers and peers on the
//! same host can reach. Nearly all of the crate's unsafe code.
//!
//! A region is mapped here a second time, beside the engine's own mapping of the same file, so
//! its owner hands over a file descriptor and never a pointer. Other threads and processes write
//! the same bytes; they are only ever touched by raw copies and system calls, never through
//! references. Who may touch which bytes when is the fence's business. Each mapping lies between guard
//! pages: an access beyond it ends the process instead of changing other memory.
#![expect(
    unsafe_code,
    reason = "maps, copies and atomics on memory that peers share"
)]

pub(crate) mod device;
pub(crate) mod vectored;

pub use device::DeviceMemory;
use device::SharedFile;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A registered region; cheap to clone, unmapped or closed with the last clone.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Memory,
}

#[derive(Clone, Debug)]
enum Memory {
    Host(HostRegion),
    Device(Arc<dyn DeviceMemory>),
}

/// Host memory behind a file.
#[derive(Clone)]
pub(crate) struct HostRegion {
    mapping: Arc<Mapping>,
}

struct Mapping {
    addr: NonNull<u8>,
    len: usize,
    /// The mapping with its guard pages.
    reserved: usize,
    writable: bool,
    file: OwnedFd,
}

/// Why memory cannot be registered, or a range not be touched.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    #[error("cannot {call} a region of {len} bytes: {source}")]
    System {
        call: &'static str,
        len: usize,
        source: rustix::io::Errno,
    },
    #[error("the file behind a region has {actual} bytes, but {expected} were stated")]
    FileTooShort { actual: u64, expected: usize },
    #[error("the peer's memory is not sealed against shrinking, so it cannot be mapped safely")]
    NotSealed,
    #[error("bytes {offset}..{end} are not within a region of {len} bytes")]
    OutOfRange { offset: u64, end: u64, len: usize },
    #[error("{ours} memory is not copied to from a peer's {theirs} memory")]
    OtherKind {
        ours: &'static str,
        theirs: &'static str,
    },
    #[error("cannot {call} device memory: {reason}")]
    Device { call: &'static str, reason: String },
}

const HOST_FROM_DEVICE: RegionError = RegionError::OtherKind {
    ours: "host",
    theirs: "device",
};
const DEVICE_FROM_HOST: RegionError = RegionError::OtherKind {
    ours: "device",
    theirs: "host",
};

// SAFETY: the mapping is plain memory that stays mapped until the last clone drops, and all access
// to it goes by raw copies, atomics and system calls, which any thread may make.
unsafe impl Send for Mapping {}
// SAFETY: as above; no reference to the mapped bytes is ever made.
unsafe impl Sync for Mapping {}

// SAFETY: own regions are mapped for reading and writing until the last clone drops, at an address that
// never changes; no reference to the bytes is ever made. A peer's, mapped read-only, is never registered.
unsafe impl pd_verbs::Registrable for HostRegion {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.mapping.addr, self.mapping.len)
    }
}

// === impl Region ===

impl Region {
    /// New shareable memory of `len` bytes, zeroed, sealed against shrinking.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn allocate(name: &str, len: usize) -> Result<Self, RegionError> {
        let system = |call| move |source| RegionError::System { call, len, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(system("create"))?;
        rustix::fs::ftruncate(&file, len as u64).map_err(system("size"))?;
        Self::map(file, len)
    }

    /// Maps `len` bytes from the start of a memfd that its owner exported, for reading and writing.
    /// The file is sealed against shrinking where it allows sealing; only then can peers map it.
    ///
    /// # Errors
    /// The file is shorter than `len`, or cannot be mapped.
    pub fn map(file: OwnedFd, len: usize) -> Result<Self, RegionError> {
        if rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).is_err() {
            tracing::debug!(len, "memory does not allow sealing; peers cannot map it");
        }
        Self::map_with(file, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps a peer's memory for reading.
    ///
    /// # Errors
    /// The file could shrink under us (reading would then kill this process), or cannot be mapped.
    pub(crate) fn map_read_only(file: OwnedFd, len: usize) -> Result<Self, RegionError> {
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(RegionError::NotSealed);
        }
        Self::map_with(file, len, ProtFlags::READ)
    }

    /// Memory of a device.
    pub fn device(memory: Arc<dyn DeviceMemory>) -> Self {
        Self {
            memory: Memory::Device(memory),
        }
    }

    /// What a peer offered by `file`: host memory to be mapped, or a handle that `own`, memory of the
    /// device that will copy from it, opens.
    ///
    /// # Errors
    /// As [`Self::map_read_only`], the device's, a file that is no handle, or that the two are of different
    /// kinds.
    pub(crate) fn open_shared(
        file: OwnedFd,
        len: usize,
        own: Option<&dyn DeviceMemory>,
    ) -> Result<Self, RegionError> {
        match (SharedFile::of(file)?, own) {
            (SharedFile::Memory(file), None) => Self::map_read_only(file, len),
            (SharedFile::Handle(handle), Some(own)) => {
                let opened = own.open_shared(&handle, len);
                Ok(Self::device(opened.map_err(failed("open a peer's"))?))
            }
            (SharedFile::Handle(_), None) => Err(HOST_FROM_DEVICE),
            (SharedFile::Memory(_), Some(_)) => Err(DEVICE_FROM_HOST),
        }
    }

    fn map_with(file: OwnedFd, len: usize, prot: ProtFlags) -> Result<Self, RegionError> {
        let system = |call| move |source| RegionError::System { call, len, source };
        let stat = rustix::fs::fstat(&file).map_err(system("inspect"))?;
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        if actual < len as u64 || len == 0 {
            return Err(RegionError::FileTooShort {
                actual,
                expected: len,
            });
        }
        let guard = rustix::param::page_size();
        let reserved = len.next_multiple_of(guard) + 2 * guard;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel picks a fresh address range, so no existing memory is affected.
        let range = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), flags)
        }
        .map_err(system("reserve"))?;
        let range = NonNull::new(range.cast()).expect("mmap never returns null on success");
        // SAFETY: the guard page before the mapping is within the range.
        let addr = unsafe { range.add(guard) };
        // Ends the reservation if mapping fails.
        let mapping = Mapping {
            addr,
            len,
            reserved,
            writable: prot.contains(ProtFlags::WRITE),
            file,
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: it replaces pages of the range just reserved, which nothing uses, and leaves a guard page at
        // each end; the length was checked against the file.
        unsafe { rustix::mm::mmap(addr.as_ptr().cast(), len, prot, flags, &mapping.file, 0) }
            .map_err(system("map"))?;
        let mapping = Arc::new(mapping);
        Ok(Self {
            memory: Memory::Host(HostRegion { mapping }),
        })
    }

    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Host(host) => host.mapping.len,
            Memory::Device(device) => device.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the region is host memory.
    pub(crate) fn as_host(&self) -> Option<&HostRegion> {
        match &self.memory {
            Memory::Host(host) => Some(host),
            Memory::Device(_) => None,
        }
    }

    /// Where it is a device's.
    pub(crate) fn as_device(&self) -> Option<&dyn DeviceMemory> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Device(device) => Some(device.as_ref()),
        }
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), RegionError> {
        check_range(self.len(), offset, len)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// The range leaves the region, or the device's.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), RegionError> {
        match &self.memory {
            Memory::Host(host) => {
                let src = host.at(offset, bytes.len())?;
                // SAFETY: src has bytes.len() mapped bytes; `bytes` is ours alone, so they cannot overlap.
                unsafe { std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), bytes.len()) };
                Ok(())
            }
            Memory::Device(device) => {
                self.check(offset, bytes.len())?;
                device.read(offset, bytes).map_err(failed("read"))
            }
        }
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// The range leaves the region, or the device's.
    ///
    /// # Panics
    /// The region is a peer's.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        match &self.memory {
            Memory::Host(host) => {
                let dst = host.at_writable(offset, bytes.len())?;
                // SAFETY: dst has bytes.len() mapped, writable bytes, apart from any Rust object.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
                Ok(())
            }
            Memory::Device(device) => {
                self.check(offset, bytes.len())?;
                device.write(offset, bytes).map_err(failed("write"))
            }
        }
    }

    /// Copies `len` bytes from another region of the same kind into this one; on a device they are there
    /// after [`settle`].
    ///
    /// # Errors
    /// A range leaves its region, the regions are of different kinds, or the device's.
    pub(crate) fn copy_from(
        &self,
        dst_offset: u64,
        src: &Self,
        src_offset: u64,
        len: usize,
    ) -> Result<(), RegionError> {
        match (&self.memory, &src.memory) {
            (Memory::Host(own), Memory::Host(peer)) => {
                let from = peer.at(src_offset, len)?;
                let to = own.at_writable(dst_offset, len)?;
                // SAFETY: both ranges are mapped; `copy` allows them to be the same memory.
                unsafe { std::ptr::copy(from, to, len) };
                Ok(())
            }
            (Memory::Device(own), Memory::Device(peer)) => {
                self.check(dst_offset, len)?;
                src.check(src_offset, len)?;
                let begun = own.copy_from(dst_offset, peer.as_ref(), src_offset, len);
                begun.map_err(failed("copy to"))
            }
            (Memory::Host(_), Memory::Device(_)) => Err(HOST_FROM_DEVICE),
            (Memory::Device(_), Memory::Host(_)) => Err(DEVICE_FROM_HOST),
        }
    }

    /// The aligned word `index` of a table of words that processes share.
    ///
    /// # Errors
    /// The table has no such word.
    pub(crate) fn word(&self, index: usize) -> Result<&AtomicU64, RegionError> {
        let host = self.as_host().expect("a table of words is host memory");
        let place = host.at(index as u64 * 8, 8)?.cast::<u64>();
        // SAFETY: mappings are page-aligned, so the word is aligned and in bounds; it lives as long
        // as `self`; words of such a table are only ever accessed as atomics. Loads are all that a
        // read-only mapping is used for.
        Ok(unsafe { AtomicU64::from_ptr(place) })
    }
}

/// The device that a rank's regions are on, by one of them; `None` where all are host memory.
pub(crate) fn device_of(regions: &[Region]) -> Option<&dyn DeviceMemory> {
    regions.iter().find_map(Region::as_device)
}

/// Waits for the copies to a rank's regions that were begun.
///
/// # Errors
/// The device's.
pub(crate) fn settle(regions: &[Region]) -> Result<(), RegionError> {
    let settled = device_of(regions).map_or(Ok(()), DeviceMemory::settle);
    settled.map_err(failed("copy to"))
}

fn check_range(region_len: usize, offset: u64, len: usize) -> Result<(), RegionError> {
    let end = offset.saturating_add(len as u64);
    if end > region_len as u64 {
        return Err(RegionError::OutOfRange {
            offset,
            end,
            len: region_len,
        });
    }
    Ok(())
}

fn failed(call: &'static str) -> impl FnOnce(String) -> RegionError {
    move |reason| RegionError::Device { call, reason }
}

// === impl HostRegion ===

impl HostRegion {
    /// The file behind it, for a peer on this host.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.mapping.file.as_fd()
    }

    /// Pointer to `offset`, after checking that `len` bytes follow it.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, RegionError> {
        check_range(self.mapping.len, offset, len)?;
        let offset = usize::try_from(offset).expect("an offset in a mapping fits usize");
        // SAFETY: offset..offset + len lies within the mapping.
        Ok(unsafe { self.mapping.addr.as_ptr().add(offset) })
    }

    fn at_writable(&self, offset: u64, len: usize) -> Result<*mut u8, RegionError> {
        assert!(self.mapping.writable, "a peer's region is never written");
        self.at(offset, len)
    }
}

impl std::fmt::Debug for HostRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRegion")
            .field("addr", &self.mapping.addr)
            .field("len", &self.mapping.len)
            .finish_non_exhaustive()
    }
}

// === impl Mapping ===

impl Drop for Mapping {
    fn drop(&mut self) {
        let guard = rustix::param::page_size();
        // SAFETY: the range begins a guard page before the mapping.
        let range = unsafe { self.addr.as_ptr().sub(guard) };
        // SAFETY: the range was reserved by `map_with`, and no clone of the region is left.
        let unmapped = unsafe { rustix::mm::munmap(range.cast(), self.reserved) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped once: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests;
