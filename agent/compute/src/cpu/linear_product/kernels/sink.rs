//! What becomes of expanded weights.

#![allow(clippy::needless_range_loop, reason = "see `super::walk`")]

use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::simd::Simd;

/// # Safety
/// [`Sink::take`] is called once per k, in order, with the instruction set of `V`.
pub(super) trait Sink<V: Simd, const W: usize> {
    unsafe fn take(&mut self, weights: [V; W]);
}

/// A register tile of `ROWS` rows and `W` vectors.
pub(super) struct Product<V, const W: usize, const ROWS: usize> {
    pub(super) sums: [[V; W]; ROWS],
    /// The activations of the next k.
    pub(super) x: *const f32,
}

/// Consecutive rows of a panel, `BLOCK_LANES` apart.
pub(super) struct Panel {
    pub(super) next: *mut f32,
}

impl<V: Simd, const W: usize, const ROWS: usize> Product<V, W, ROWS> {
    #[inline(always)]
    pub(super) unsafe fn new(x: *const f32) -> Self {
        // SAFETY: the caller has the instruction set.
        let sums = unsafe { [[V::splat(0.0); W]; ROWS] };
        Self { sums, x }
    }
}

impl<V: Simd, const W: usize, const ROWS: usize> Sink<V, W> for Product<V, W, ROWS> {
    #[inline(always)]
    unsafe fn take(&mut self, weights: [V; W]) {
        for row in 0..ROWS {
            // SAFETY: `x` is `[k][ROWS]` and this is one of k calls.
            let x = unsafe { V::splat(*self.x.add(row)) };
            for i in 0..W {
                // SAFETY: the caller has the instruction set.
                self.sums[row][i] = unsafe { x.fma(weights[i], self.sums[row][i]) };
            }
        }
        // SAFETY: at most one past the end, after the last k.
        self.x = unsafe { self.x.add(ROWS) };
    }
}

impl<V: Simd, const W: usize> Sink<V, W> for Panel {
    #[inline(always)]
    unsafe fn take(&mut self, weights: [V; W]) {
        for i in 0..W {
            // SAFETY: the panel has a row for each k, and `W` vectors fit in what is left of it.
            unsafe { weights[i].store(self.next.add(i * V::LANES)) };
        }
        // SAFETY: at most one row past the end; wrapping because a half panel ends beyond it.
        self.next = self.next.wrapping_add(BLOCK_LANES);
    }
}
