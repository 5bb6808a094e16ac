//! What a queued command holds of a buffer: elements to read, or to write from several threads.

use super::CpuBuffer;
use bytemuck::{AnyBitPattern, NoUninit};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements that a queued command reads. Holds the memory, not a borrow of it.
pub(in crate::cpu) struct Src<T> {
    buffer: CpuBuffer,
    element: PhantomData<fn() -> T>,
}

/// Elements that a queued command writes, from several threads at once.
pub(in crate::cpu) struct Dst<T> {
    buffer: CpuBuffer,
    element: PhantomData<fn() -> T>,
}

// === impl Src ===

impl<T: AnyBitPattern> Src<T> {
    /// The buffer's elements have the size of T.
    pub(super) fn new(buffer: CpuBuffer) -> Self {
        Self {
            buffer,
            element: PhantomData,
        }
    }

    /// # Safety
    /// Called from a running command, and nothing writes these elements while the slice lives.
    pub(in crate::cpu) unsafe fn slice(&self) -> &[T] {
        // SAFETY: in bounds and aligned by `checked` (elements start at multiples of their size in
        // a page-aligned mapping); every bit pattern is a T; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.buffer.ptr(), self.buffer.len) }
    }
}

// === impl Dst ===

impl<T: AnyBitPattern + NoUninit> Dst<T> {
    /// The buffer's elements have the size of T.
    pub(super) fn new(buffer: CpuBuffer) -> Self {
        Self {
            buffer,
            element: PhantomData,
        }
    }

    pub(in crate::cpu) fn len(&self) -> usize {
        self.buffer.len
    }

    /// # Safety
    /// Called from a running command, and nothing writes this range while the slice lives.
    pub(in crate::cpu) unsafe fn slice(&self, range: Range<usize>) -> &[T] {
        assert!(
            range.start <= range.end && range.end <= self.buffer.len,
            "range {range:?} exceeds {:?}",
            self.buffer
        );
        // SAFETY: in bounds by the assertion, aligned by `checked`, unwritten by the promise.
        unsafe { std::slice::from_raw_parts(self.buffer.ptr::<T>().add(range.start), range.len()) }
    }

    /// # Safety
    /// Called from a running command, and nothing else reads or writes this range while the slice
    /// lives: concurrent tasks take disjoint ranges.
    #[allow(
        clippy::mut_from_ref,
        reason = "disjointness of the ranges is the caller's promise"
    )]
    pub(in crate::cpu) unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.buffer.len,
            "range {range:?} exceeds {:?}",
            self.buffer
        );
        // SAFETY: in bounds by the assertion, aligned by `checked`, exclusive by the promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.buffer.ptr::<T>().add(range.start), range.len())
        }
    }

    /// Address of the first element, for kernels with strides of their own.
    pub(in crate::cpu) fn as_ptr(&self) -> *mut T {
        self.buffer.ptr()
    }
}
