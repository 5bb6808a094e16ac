//! A block's products in bfloat16, by `vdpbf16ps`: where activations, keys and values are that, and the processor has it.
//!
//! Queries and weights are rounded, as a linear's activations are; sums and weights' own sum stay f32. Each element is one
//! chain over ascending pairs of dimensions or of keys, the same beside any other rows. A key that a row does not see is 0 in
//! its pair.

use super::ahead::Ahead;
use super::products::Products;
use crate::cpu::kv_layer::Region;
use crate::cpu::linear_product::{as_pairs, round_pairs};
use crate::cpu::simd::Simd as _;
use crate::cpu::simd::avx512::Avx512;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::ATTN_BLOCK_LEN;
use std::arch::x86_64::{
    __m512i, _mm256_loadu_si256, _mm512_and_si512, _mm512_cvtepu16_epi32, _mm512_dpbf16_ps,
    _mm512_loadu_si512, _mm512_or_si512, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_slli_epi32,
    _mm512_storeu_ps, _mm512_storeu_si512,
};
use std::ops::Range;

/// `c = a·b`, of words that are pairs: `a` row by row, `b` with a row for each pair.
struct Product {
    a: *const u32,
    a_stride: usize,
    b: *const u32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
}

/// Pairs of rows' own beginnings and ends, of which a row has one half.
const LOW: i32 = 0xffff;

impl<A: Ahead> Products<'_, A> {
    /// Writes `scores[row][key]` for the keys that are read. `queries` become pairs; `turned` is memory for keys.
    ///
    /// # Safety
    /// On the queue, where the op is in pairs; slices have all rows of the tile, and `turned` a block of keys.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn score_pairs(
        &self,
        queries: &mut [f32],
        turned: &mut [f32],
        depths: &mut Vec<Range<usize>>,
        scores: &mut [f32],
    ) {
        let key_dim = self.tile.padded_key_dim();
        // SAFETY: by the contract.
        unsafe {
            self.turn_keys(turned);
            let product = Product {
                a: round_rows(queries, key_dim, &self.rows),
                a_stride: key_dim,
                b: turned.as_ptr().cast(),
                b_stride: ATTN_BLOCK_LEN,
                c: scores.as_mut_ptr().add(self.rows.start * ATTN_BLOCK_LEN),
                c_stride: ATTN_BLOCK_LEN,
            };
            depths.clear();
            depths.resize(self.rows.len(), 0..key_dim);
            product.run(depths, self.places.vectors());
        }
    }

    /// Writes `out[row][value dim]`: weights times values, of the keys that `visible` says of each row. `weights` become
    /// pairs; `paired` is memory for values.
    ///
    /// # Safety
    /// As [`Self::score_pairs`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn weigh_pairs(
        &self,
        weights: &mut [f32],
        visible: &[Range<usize>],
        paired: &mut [f32],
        out: &mut [f32],
    ) {
        let dim = self.tile.op.value_dim;
        // SAFETY: by the contract.
        unsafe {
            self.pair_values(paired);
            let product = Product {
                a: round_rows(weights, ATTN_BLOCK_LEN, &self.rows),
                a_stride: ATTN_BLOCK_LEN,
                b: paired.as_ptr().cast(),
                b_stride: dim,
                c: out.as_mut_ptr().add(self.rows.start * dim),
                c_stride: dim,
            };
            product.run(visible, dim / LANES);
        }
    }

    /// Writes `out[pair of dimensions][key]`; keys that are not read are 0.
    ///
    /// # Safety
    /// As [`Self::score_pairs`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers")]
    unsafe fn turn_keys(&self, out: &mut [f32]) {
        let (places, base) = (self.places, self.base());
        for first_key in (0..places.vectors()).map(|vector| vector * LANES) {
            for first_dim in (0..self.tile.op.layer.head_dim).step_by(2 * LANES) {
                self.ahead.ask_keys(first_key, first_dim);
                // SAFETY: the places are written slots of the region; `out` has a row for each pair.
                unsafe {
                    let row =
                        |i| Avx512::load(base.add(places.at(first_key + i) + first_dim).cast());
                    let mut rows = [Avx512::splat(0.0); LANES];
                    let is_read = |i| places.are_read(first_key + i..first_key + i + 1);
                    if places.are_read(first_key..first_key + LANES) {
                        for i in 0..LANES {
                            rows[i] = row(i);
                        }
                    } else {
                        for i in (0..LANES).filter(|i| is_read(*i)) {
                            rows[i] = row(i);
                        }
                    }
                    let out = out.as_mut_ptr();
                    let out = out.add(first_dim / 2 * ATTN_BLOCK_LEN + first_key);
                    for (i, column) in Avx512::transpose(rows).into_iter().enumerate() {
                        column.store(out.add(i * ATTN_BLOCK_LEN));
                    }
                }
            }
        }
    }

    /// Writes `out[pair of keys][value dim]`; keys that are not read are 0.
    ///
    /// # Safety
    /// As [`Self::score_pairs`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn pair_values(&self, out: &mut [f32]) {
        let op = self.tile.op;
        let (places, base) = (self.places, self.base());
        let pairs = out.chunks_exact_mut(op.value_dim).enumerate();
        for (pair, out) in pairs.take(places.vectors() * LANES / 2) {
            let keys = [2 * pair, 2 * pair + 1];
            keys.iter().for_each(|key| self.ahead.ask_value(*key));
            for (vector, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: the places are written slots of the region.
                let half = |key: usize| unsafe {
                    if !places.are_read(key..key + 1) {
                        return _mm512_set1_epi32(0);
                    }
                    let at = base.add(places.at(key) + op.to_value + vector * LANES);
                    _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()))
                };
                let (even, odd) = (half(keys[0]), half(keys[1]));
                let words = _mm512_or_si512(even, _mm512_slli_epi32::<16>(odd));
                // SAFETY: sixteen words.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), words) };
            }
        }
    }

    fn base(&self) -> *const u16 {
        match &self.tile.op.layer.region {
            Region::BF16(region) => region.as_ptr(),
            Region::F32(_) | Region::F16(_) | Region::F8E4M3(_) => {
                unreachable!("pairs are of bfloat16")
            }
        }
    }
}

/// Rounds rows in place: their first halves become pairs. Returns the first of them.
///
/// # Safety
/// The instruction set is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn round_rows(values: &mut [f32], len: usize, rows: &Range<usize>) -> *const u32 {
    let rows = &mut values[rows.start * len..rows.end * len];
    for row in rows.chunks_exact_mut(len) {
        let at = row.as_mut_ptr();
        for first in (0..len).step_by(2 * LANES) {
            // SAFETY: two vectors of f32 become one, which lies before or over them.
            unsafe { round_pairs(at.add(first), at.add(first / 2)) };
        }
    }
    rows.as_ptr().cast()
}

// === impl Product ===

impl Product {
    /// Of each row, the halves of pairs in its range; neither end falls from row to row.
    ///
    /// # Safety
    /// The instruction set is there; operands are as long as ranges and vectors say.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn run(&self, ranges: &[Range<usize>], vectors: usize) {
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
            let b = |pair: usize, n: usize| -> __m512i {
                let at = self.b.add(pair * self.b_stride + (vector + n) * LANES);
                _mm512_loadu_si512(at.cast())
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
                    for n in 0..N {
                        let b = _mm512_and_si512(b(pair, n), mask);
                        sums[r][n] =
                            _mm512_dpbf16_ps(sums[r][n], as_pairs(a(r, pair)), as_pairs(b));
                    }
                }
            }
            for pair in begin..end {
                let mut b_row = [_mm512_set1_epi32(0); N];
                for n in 0..N {
                    b_row[n] = b(pair, n);
                }
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
                    for n in 0..N {
                        let b = _mm512_and_si512(b(pair, n), mask);
                        sums[r][n] =
                            _mm512_dpbf16_ps(sums[r][n], as_pairs(a(r, pair)), as_pairs(b));
                    }
                }
                let c = self.c.add((row + r) * self.c_stride + vector * LANES);
                for n in 0..N {
                    _mm512_storeu_ps(c.add(n * LANES), sums[r][n]);
                }
            }
        }
        N
    }
}

/// The halves of a pair that a range has.
fn seen(pair: usize, range: &Range<usize>) -> i32 {
    let low = if range.contains(&(2 * pair)) { LOW } else { 0 };
    let high = if range.contains(&(2 * pair + 1)) {
        !LOW
    } else {
        0
    };
    low | high
}
