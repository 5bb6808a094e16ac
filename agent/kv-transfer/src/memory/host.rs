//! Host memory: files mapped here, and memory of this process where it lies.

use super::{RegionError, check_range};
use pd_verbs::Registrable;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Host memory.
#[derive(Clone)]
pub(crate) struct HostRegion {
    pub(super) mapping: Arc<Mapping>,
}

pub(super) struct Mapping {
    pub(super) addr: NonNull<u8>,
    len: usize,
    writable: bool,
    owner: Owner,
}

/// What ends a mapping.
enum Owner {
    /// We do: the file, and the length of the mapping with its guard pages.
    Us { file: OwnedFd, reserved: usize },
    /// Its owner does, once this is dropped.
    Another { _memory: Arc<dyn Registrable> },
}

// SAFETY: the mapping is plain memory that stays mapped until the last clone drops, and all access from
// here goes by raw copies, atomics and system calls, which any thread may make.
unsafe impl Send for Mapping {}
// SAFETY: as above. No reference to the mapped bytes is made here; the owner of private memory makes some
// to bytes alone that no transfer touches meanwhile.
unsafe impl Sync for Mapping {}

// SAFETY: own regions are mapped for reading and writing until the last clone drops, at an address that
// never changes; references to the bytes are made as above. A peer's, mapped read-only, is never registered.
unsafe impl Registrable for HostRegion {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.mapping.addr, self.mapping.len)
    }
}

// === impl HostRegion ===

impl HostRegion {
    /// The first `len` bytes of a file.
    ///
    /// # Errors
    /// It is shorter, or cannot be mapped.
    pub(super) fn map(file: OwnedFd, len: usize, prot: ProtFlags) -> Result<Self, RegionError> {
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
            writable: prot.contains(ProtFlags::WRITE),
            owner: Owner::Us { file, reserved },
        };
        let Owner::Us { file, .. } = &mapping.owner else {
            unreachable!("it was just made")
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: it replaces pages of the range just reserved, which nothing uses, and leaves a guard page at
        // each end; the length was checked against the file.
        unsafe { rustix::mm::mmap(addr.as_ptr().cast(), len, prot, flags, file, 0) }
            .map_err(system("map"))?;
        let mapping = Arc::new(mapping);
        Ok(Self { mapping })
    }

    pub(super) fn private(memory: Arc<dyn Registrable>) -> Self {
        let (addr, len) = memory.range();
        let mapping = Arc::new(Mapping {
            addr,
            len,
            writable: true,
            owner: Owner::Another { _memory: memory },
        });
        Self { mapping }
    }

    pub(super) fn len(&self) -> usize {
        self.mapping.len
    }

    /// The file behind it, for a peer on this host; none where it is this process's alone.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.mapping.owner {
            Owner::Us { file, .. } => Some(file.as_fd()),
            Owner::Another { .. } => None,
        }
    }

    /// Pointer to `offset`, after checking that `len` bytes follow it.
    pub(super) fn at(&self, offset: u64, len: usize) -> Result<*mut u8, RegionError> {
        check_range(self.mapping.len, offset, len)?;
        let offset = usize::try_from(offset).expect("an offset in a mapping fits usize");
        // SAFETY: offset..offset + len lies within the mapping.
        Ok(unsafe { self.mapping.addr.as_ptr().add(offset) })
    }

    pub(super) fn at_writable(&self, offset: u64, len: usize) -> Result<*mut u8, RegionError> {
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
        let Owner::Us { reserved, .. } = self.owner else {
            return;
        };
        let guard = rustix::param::page_size();
        // SAFETY: the range begins a guard page before the mapping.
        let range = unsafe { self.addr.as_ptr().sub(guard) };
        // SAFETY: the range was reserved by `map`, and no clone of the region is left.
        let unmapped = unsafe { rustix::mm::munmap(range.cast(), reserved) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped once: {unmapped:?}");
    }
}
