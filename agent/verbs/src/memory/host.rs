//! Host memory for RDMA.

use crate::memory::range::{RangeError, check};
use crate::memory::{PAGE_BYTES, Registrable};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

/// Zeroed host memory, for bounce buffers, small rows and tests.
pub struct HostMemory {
    addr: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory of its own, touched by raw copies only.
unsafe impl Send for HostMemory {}

// SAFETY: as above. Copies by several threads at once may mix bytes, as those of a peer may.
unsafe impl Sync for HostMemory {}

// === impl HostMemory ===

impl HostMemory {
    /// `len` bytes of zeroes at a page boundary.
    ///
    /// # Panics
    /// `len` is 0 or too large.
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has bytes.
        let addr = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(addr) = NonNull::new(addr) else {
            std::alloc::handle_alloc_error(layout)
        };
        Self { addr, len }
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0, "memory of no bytes");
        Layout::from_size_align(len, PAGE_BYTES).expect("a size of memory")
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, RangeError> {
        check(offset as u64, len as u64, self.len as u64)?;
        // SAFETY: offset..offset + len lies within the allocation.
        Ok(unsafe { self.addr.as_ptr().add(offset) })
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// The range exceeds the memory.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        let src = self.at(offset, bytes.len())?;
        // SAFETY: `src` has that many bytes here, and `bytes`, borrowed alone, is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// The range exceeds the memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        let dst = self.at(offset, bytes.len())?;
        // SAFETY: `dst` has that many bytes here, to which no reference is ever made.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
        Ok(())
    }
}

// SAFETY: allocated, readable and writable until it drops, at an address that moves with no move of
// the value; no reference to the bytes is ever made.
unsafe impl Registrable for Arc<HostMemory> {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.addr, self.len)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with this layout.
        unsafe { std::alloc::dealloc(self.addr.as_ptr(), Self::layout(self.len)) };
    }
}
