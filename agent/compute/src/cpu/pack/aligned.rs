//! Zeroed memory on a cache line's boundary; large pieces on huge pages where the kernel gives
//! them, since weights are read as long streams.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

#[derive(Debug)]
pub(crate) struct AlignedBytes {
    at: NonNull<u8>,
    len: usize,
    origin: Origin,
}

/// Where the memory came from, and goes back to.
#[derive(Debug)]
enum Origin {
    Nothing,
    Allocator(Layout),
    /// A mapping of its own, which begins before the first huge page in it. (An allocator would
    /// write zeros, so touch every small page, before the kernel could be asked for large ones.)
    Mapping {
        start: NonNull<u8>,
        len: usize,
    },
}

// SAFETY: owned bytes, shared only by reference.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above; `&self` gives no write access.
unsafe impl Sync for AlignedBytes {}

/// A borrow of all bytes that several threads write apart from each other.
pub(crate) struct SharedBytes<'a> {
    at: NonNull<u8>,
    len: usize,
    owner: PhantomData<&'a mut [u8]>,
}

// SAFETY: the one method that writes asks its callers for disjoint ranges.
unsafe impl Sync for SharedBytes<'_> {}

// === impl AlignedBytes ===

impl AlignedBytes {
    /// `None` if the allocation fails.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        match len {
            0 => Some(Self {
                at: NonNull::dangling(),
                len,
                origin: Origin::Nothing,
            }),
            HUGE_PAGE.. => Self::mapped(len),
            _ => {
                let layout = Layout::from_size_align(len, CACHE_LINE).ok()?;
                // SAFETY: the size is not zero.
                let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
                Some(Self {
                    at,
                    len,
                    origin: Origin::Allocator(layout),
                })
            }
        }
    }

    fn mapped(len: usize) -> Option<Self> {
        let mapping_len = len.checked_add(HUGE_PAGE)?;
        // SAFETY: a new private mapping, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                mapping_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = NonNull::new(start.cast::<u8>())?;
        // SAFETY: less than HUGE_PAGE further on, where `len` bytes of the mapping are left; the
        // advice is about our own pages, and does no harm where it is refused.
        let at = unsafe {
            let at = start.add(start.align_offset(HUGE_PAGE));
            libc::madvise(at.as_ptr().cast(), len, libc::MADV_HUGEPAGE);
            at
        };
        Some(Self {
            at,
            len,
            origin: Origin::Mapping {
                start,
                len: mapping_len,
            },
        })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes of our own (none when dangling).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes, owned and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at.as_ptr()
    }

    pub(crate) fn shared(&mut self) -> SharedBytes<'_> {
        SharedBytes {
            at: self.at,
            len: self.len,
            owner: PhantomData,
        }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        match self.origin {
            Origin::Nothing => {}
            // SAFETY: allocated by `zeroed` with this layout.
            Origin::Allocator(layout) => unsafe { dealloc(self.at.as_ptr(), layout) },
            // SAFETY: mapped by `mapped`, and no borrow outlives its owner.
            Origin::Mapping { start, len } => unsafe {
                libc::munmap(start.as_ptr().cast(), len);
            },
        }
    }
}

// === impl SharedBytes ===

impl SharedBytes<'_> {
    /// # Safety
    /// No range may overlap one that another thread, or an earlier call, still uses.
    #[allow(clippy::mut_from_ref, reason = "the contract keeps the ranges apart")]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [u8] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} of {}",
            self.len
        );
        // SAFETY: within the allocation, and by the contract used by this caller alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(range.start), range.len()) }
    }
}
