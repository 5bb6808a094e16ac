//! Zeroed memory on a cache line's boundary; large pieces on huge pages where the kernel gives
//! them, since weights are read as long streams.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

#[derive(Debug)]
pub(crate) struct AlignedBytes {
    at: NonNull<u8>,
    len: usize,
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
    /// `None` when the allocator refuses.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        if len == 0 {
            return Some(Self {
                at: NonNull::dangling(),
                len,
            });
        }
        let layout = Self::layout(len)?;
        // SAFETY: the size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        if len >= HUGE_PAGE {
            // SAFETY: advice about our own, page-aligned allocation; no harm where it is refused.
            unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Some(Self { at, len })
    }

    fn layout(len: usize) -> Option<Layout> {
        let align = if len >= HUGE_PAGE {
            HUGE_PAGE
        } else {
            CACHE_LINE
        };
        Layout::from_size_align(len, align).ok()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes of our own (none when dangling).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
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
        if let Some(layout) = Self::layout(self.len).filter(|_| self.len > 0) {
            // SAFETY: allocated by `zeroed` with this layout.
            unsafe { dealloc(self.at.as_ptr(), layout) };
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
