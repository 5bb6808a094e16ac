//! The inner product of attention: `c = a·b` for a few rows, with one fma chain per element in
//! ascending depth. Each row has a range of depths, neither end of which falls from row to row.

use crate::cpu::simd::sixteen::{LANES, Sixteen};
use std::ops::Range;

/// The rows of b, whole vectors of columns long.
pub(super) trait Rows {
    /// Where a row begins.
    type Place: Copy;

    /// # Safety
    /// There is a row `i`.
    unsafe fn row(&self, i: usize) -> Self::Place;

    /// Vector `n` of a row.
    ///
    /// # Safety
    /// The row has this vector; the instruction set of `V`.
    unsafe fn load<V: Sixteen>(row: Self::Place, n: usize) -> V;
}

/// Row-major operands.
pub(super) struct Matmul<'a, B> {
    /// `rows × depth`, `a_stride` apart.
    pub(super) a: *const f32,
    pub(super) a_stride: usize,
    pub(super) b: B,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    /// Vectors of columns.
    pub(super) vectors: usize,
    /// Per row.
    pub(super) depths: &'a [Range<usize>],
    /// Whether rows begin at different depths.
    pub(super) is_windowed: bool,
}

// === impl Matmul ===

impl<B: Rows> Matmul<'_, B> {
    /// # Safety
    /// The instruction set of `V`; a, b and c are as long as described and c shares no memory.
    #[inline(always)]
    pub(super) unsafe fn run<V: Sixteen>(self) {
        // SAFETY: the caller's.
        unsafe {
            if self.is_windowed {
                self.all_rows::<V, true>();
            } else {
                self.all_rows::<V, false>();
            }
        }
    }

    #[inline(always)]
    unsafe fn all_rows<V: Sixteen, const WINDOWED: bool>(&self) {
        let rows = self.depths.len();
        let mut row = 0;
        // SAFETY: as `run`; rows and vectors stay below their counts.
        unsafe {
            while row < rows {
                row += match rows - row {
                    6.. if V::MANY_REGISTERS => self.rows::<V, WINDOWED, 6>(row),
                    4.. if V::MANY_REGISTERS => self.rows::<V, WINDOWED, 4>(row),
                    3 if V::MANY_REGISTERS => self.rows::<V, WINDOWED, 3>(row),
                    2.. => self.rows::<V, WINDOWED, 2>(row),
                    _ => self.rows::<V, WINDOWED, 1>(row),
                };
            }
        }
    }

    #[inline(always)]
    unsafe fn rows<V: Sixteen, const WINDOWED: bool, const R: usize>(&self, row: usize) -> usize {
        let mut vector = 0;
        // SAFETY: as `run`.
        unsafe {
            while vector < self.vectors {
                vector += match self.vectors - vector {
                    4.. if V::MANY_REGISTERS => self.tile::<V, WINDOWED, R, 4>(row, vector),
                    2.. => self.tile::<V, WINDOWED, R, 2>(row, vector),
                    _ => self.tile::<V, WINDOWED, R, 1>(row, vector),
                };
            }
        }
        R
    }

    /// R rows by N vectors, kept in registers over the whole depth.
    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "a closure or an iterator over vectors may be compiled without their instructions"
    )]
    unsafe fn tile<V: Sixteen, const WINDOWED: bool, const R: usize, const N: usize>(
        &self,
        row: usize,
        vector: usize,
    ) -> usize {
        let Self {
            a_stride, c_stride, ..
        } = *self;
        let depths = &self.depths[row..row + R];
        // SAFETY: as `run`.
        unsafe {
            let a = self.a.add(row * a_stride);
            let mut sums = [[V::splat(0.0); N]; R];
            // What all rows have, between the rows' own beginnings and ends.
            let end = depths[0].end;
            let begin = if WINDOWED { depths[R - 1].start } else { 0 };
            if WINDOWED {
                for r in 0..R {
                    for i in depths[r].start..begin.min(depths[r].end) {
                        let a = V::splat(*a.add(r * a_stride + i));
                        for n in 0..N {
                            sums[r][n] = a.fma(B::load(self.b.row(i), vector + n), sums[r][n]);
                        }
                    }
                }
            }
            for i in begin..end {
                let b_row = self.b.row(i);
                let mut b = [V::splat(0.0); N];
                for n in 0..N {
                    b[n] = B::load(b_row, vector + n);
                }
                for r in 0..R {
                    let a = V::splat(*a.add(r * a_stride + i));
                    for n in 0..N {
                        sums[r][n] = a.fma(b[n], sums[r][n]);
                    }
                }
            }
            for r in 0..R {
                for i in begin.max(end)..depths[r].end {
                    let a = V::splat(*a.add(r * a_stride + i));
                    for n in 0..N {
                        sums[r][n] = a.fma(B::load(self.b.row(i), vector + n), sums[r][n]);
                    }
                }
                let c = self.c.add((row + r) * c_stride + vector * LANES);
                for n in 0..N {
                    sums[r][n].store(c.add(n * LANES));
                }
            }
        }
        N
    }
}
