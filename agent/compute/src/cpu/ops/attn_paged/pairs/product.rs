//! `c = a·b` of pairs, each element one chain over ascending pairs of depth.

use crate::cpu::linear_product::as_pairs;
use crate::cpu::simd::sixteen::LANES;
use std::arch::x86_64::{
    __m512, __m512i, _mm512_and_si512, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_set1_epi32,
    _mm512_setzero_ps, _mm512_storeu_ps,
};
use std::ops::Range;

/// Rows of pairs of b.
pub(super) trait PairRows {
    /// Vectors `[vector, vector + N)` of a row. Its columns may be in any order that [`Self::in_order`] undoes.
    ///
    /// # Safety
    /// There is such a row, and it has these vectors; AVX-512 BF16 is there.
    unsafe fn load<const N: usize>(&self, pair: usize, vector: usize) -> [__m512i; N];

    /// Sums of columns as [`Self::load`] has them, in order.
    ///
    /// # Safety
    /// AVX-512 is there.
    unsafe fn in_order<const N: usize>(sums: [__m512; N]) -> [__m512; N];
}

/// Rows that lie in memory.
pub(super) struct Stored {
    pub(super) at: *const u32,
    pub(super) stride: usize,
}

/// Of words that are pairs.
pub(super) struct Product<B> {
    pub(super) a: *const u32,
    pub(super) a_stride: usize,
    pub(super) b: B,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
}

/// Pairs of rows' own beginnings and ends, of which a row has one half.
const LOW: i32 = 0xffff;

impl PairRows for Stored {
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers")]
    unsafe fn load<const N: usize>(&self, pair: usize, vector: usize) -> [__m512i; N] {
        // SAFETY: the caller's.
        unsafe {
            let row = self.at.add(pair * self.stride + vector * LANES);
            let mut vectors = [_mm512_set1_epi32(0); N];
            for n in 0..N {
                vectors[n] = _mm512_loadu_si512(row.add(n * LANES).cast());
            }
            vectors
        }
    }

    #[inline(always)]
    unsafe fn in_order<const N: usize>(sums: [__m512; N]) -> [__m512; N] {
        sums
    }
}

// === impl Product ===

impl<B: PairRows> Product<B> {
    /// Of each row, the halves of pairs in its range; neither end falls from row to row.
    ///
    /// # Safety
    /// The instruction set is there; operands are as long as ranges and vectors say.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn run(&self, ranges: &[Range<usize>], vectors: usize) {
        let is_windowed = ranges.last().is_some_and(|range| range.start > 0);
        // SAFETY: by the contract.
        unsafe {
            if is_windowed {
                self.all_rows::<true>(ranges, vectors);
            } else {
                self.all_rows::<false>(ranges, vectors);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn all_rows<const WINDOWED: bool>(&self, ranges: &[Range<usize>], vectors: usize) {
        let mut row = 0;
        while row < ranges.len() {
            // SAFETY: by the contract; there are as many rows.
            row += unsafe {
                match ranges.len() - row {
                    6.. => self.rows::<WINDOWED, 6>(row, ranges, vectors),
                    4.. => self.rows::<WINDOWED, 4>(row, ranges, vectors),
                    3 => self.rows::<WINDOWED, 3>(row, ranges, vectors),
                    2 => self.rows::<WINDOWED, 2>(row, ranges, vectors),
                    _ => self.rows::<WINDOWED, 1>(row, ranges, vectors),
                }
            };
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn rows<const WINDOWED: bool, const R: usize>(
        &self,
        row: usize,
        ranges: &[Range<usize>],
        vectors: usize,
    ) -> usize {
        let ranges = &ranges[row..row + R];
        let mut vector = 0;
        while vector < vectors {
            // SAFETY: by the contract; there are as many vectors.
            vector += unsafe {
                match vectors - vector {
                    4.. => self.tile::<WINDOWED, R, 4>(row, ranges, vector),
                    2.. => self.tile::<WINDOWED, R, 2>(row, ranges, vector),
                    _ => self.tile::<WINDOWED, R, 1>(row, ranges, vector),
                }
            };
        }
        R
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers")]
    unsafe fn tile<const WINDOWED: bool, const R: usize, const N: usize>(
        &self,
        row: usize,
        ranges: &[Range<usize>],
        vector: usize,
    ) -> usize {
        // SAFETY: by the contract of `run`.
        unsafe {
            let a = |r: usize, pair: usize| {
                _mm512_set1_epi32(
                    self.a
                        .add((row + r) * self.a_stride + pair)
                        .read()
                        .cast_signed(),
                )
            };
            let mut sums = [[_mm512_setzero_ps(); N]; R];
            // Whole pairs of all rows.
            let begin = if WINDOWED {
                ranges[R - 1].start.div_ceil(2)
            } else {
                0
            };
            let end = (ranges[0].end / 2).max(begin);
            for r in (0..R).filter(|_| WINDOWED) {
                for pair in ranges[r].start / 2..begin.min(ranges[r].end.div_ceil(2)) {
                    let mask = _mm512_set1_epi32(seen(pair, &ranges[r]));
                    let b_row = self.b.load::<N>(pair, vector);
                    for n in 0..N {
                        let b = as_pairs(_mm512_and_si512(b_row[n], mask));
                        sums[r][n] = _mm512_dpbf16_ps(sums[r][n], as_pairs(a(r, pair)), b);
                    }
                }
            }
            for pair in begin..end {
                let b_row = self.b.load::<N>(pair, vector);
                for r in 0..R {
                    let a = as_pairs(a(r, pair));
                    for n in 0..N {
                        sums[r][n] = _mm512_dpbf16_ps(sums[r][n], a, as_pairs(b_row[n]));
                    }
                }
            }
            for r in 0..R {
                for pair in end.max(ranges[r].start / 2)..ranges[r].end.div_ceil(2) {
                    let mask = _mm512_set1_epi32(seen(pair, &ranges[r]));
                    let b_row = self.b.load::<N>(pair, vector);
                    for n in 0..N {
                        let b = as_pairs(_mm512_and_si512(b_row[n], mask));
                        sums[r][n] = _mm512_dpbf16_ps(sums[r][n], as_pairs(a(r, pair)), b);
                    }
                }
                let c = self.c.add((row + r) * self.c_stride + vector * LANES);
                let sums = B::in_order(sums[r]);
                for n in 0..N {
                    _mm512_storeu_ps(c.add(n * LANES), sums[n]);
                }
            }
        }
        N
    }
}

/// The halves of a pair that a range has.
pub(super) fn seen(pair: usize, range: &Range<usize>) -> i32 {
    let low = if range.contains(&(2 * pair)) { LOW } else { 0 };
    let high = if range.contains(&(2 * pair + 1)) {
        !LOW
    } else {
        0
    };
    low | high
}
