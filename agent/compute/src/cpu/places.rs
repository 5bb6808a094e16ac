//! Memory that the tasks of a command share, each with a place of its own.

use std::marker::PhantomData;

/// Equal places in one slice, written by several threads.
pub(super) struct Places<'a> {
    start: *mut f32,
    stride: usize,
    count: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads take different places, by the caller's promise in `get`.
unsafe impl Sync for Places<'_> {}

// === impl Places ===

impl<'a> Places<'a> {
    /// As many places of `stride` elements as the slice holds.
    pub(super) fn new(slice: &'a mut [f32], stride: usize) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            stride,
            count: slice.len() / stride.max(1),
            slice: PhantomData,
        }
    }

    /// The first `len` elements of a place.
    ///
    /// # Safety
    /// No other thread holds the place meanwhile.
    #[allow(clippy::mut_from_ref, reason = "each place is taken once at a time")]
    pub(super) unsafe fn get(&self, place: usize, len: usize) -> &mut [f32] {
        assert!(
            len <= self.stride && place < self.count,
            "place {place} of {len} elements exceeds {} of {}",
            self.count,
            self.stride
        );
        // SAFETY: within the slice by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(place * self.stride), len) }
    }
}
