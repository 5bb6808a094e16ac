//! The products on AMX's tiles, at every number of rows: of thirty-two dimensions or keys, a chain over even ones and one
//! over odd ones, whose sum is added.
//!
//! A key that a row does not see has weight 0. That hides its value too, but for one that is no number: a block with such
//! values is multiplied row by row, without what the row does not see.

use super::super::ahead::Ahead;
use super::super::products::Products;
use super::product::{PairRows as _, seen};
use crate::cpu::simd::sixteen::LANES;
use crate::cpu::simd::tiles::{At, TILE_ROWS, Tiles, product};
use crate::ops::ATTN_BLOCK_LEN;
use std::arch::x86_64::{
    _mm512_and_si512, _mm512_cmpeq_epi16_mask, _mm512_set1_epi16, _mm512_set1_epi32,
    _mm512_storeu_si512,
};
use std::ops::Range;

/// Keys or dimensions of a step.
const STEP: usize = 2 * TILE_ROWS;
/// Bits of a bfloat16's exponent, all ones in what is no finite number.
const EXPONENT: i16 = 0x7f80;

impl<A: Ahead> Products<'_, A> {
    /// As [`Self::score_pairs`].
    ///
    /// # Safety
    /// As [`Self::score_pairs`], where this process may use AMX.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(in super::super) unsafe fn score_tiles(
        &self,
        queries: &[f32],
        turned: &mut [f32],
        tiles: &mut Tiles,
        scores: &mut [f32],
    ) {
        let key_dim = self.tile.padded_key_dim();
        // SAFETY: by the contract.
        unsafe {
            self.turn_keys(turned);
            let product = TileProduct {
                a: queries[self.rows.start * key_dim..].as_ptr(),
                a_stride: key_dim,
                b: turned.as_ptr(),
                b_stride: ATTN_BLOCK_LEN,
                c: scores[self.rows.start * ATTN_BLOCK_LEN..].as_mut_ptr(),
                c_stride: ATTN_BLOCK_LEN,
                steps: key_dim / STEP,
                vectors: self.places.vectors(),
            };
            product.run(self.rows.len(), tiles);
        }
    }

    /// As [`Self::weigh_pairs`]; weights of keys that a row does not see are 0.
    ///
    /// # Safety
    /// As [`Self::score_tiles`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(in super::super) unsafe fn weigh_tiles(
        &self,
        weights: &mut [f32],
        visible: &[Range<usize>],
        paired: &mut [f32],
        tiles: &mut Tiles,
        out: &mut [f32],
    ) {
        let dim = self.tile.op.value_dim;
        let keys = self.places.vectors() * LANES;
        let (first, count) = (self.rows.start, self.rows.len());
        let weights = &mut weights[first * ATTN_BLOCK_LEN..][..count * ATTN_BLOCK_LEN];
        // SAFETY: by the contract.
        unsafe {
            super::round_rows(weights, ATTN_BLOCK_LEN);
            let are_finite = self.pair_read_values(paired);
            let product = TileProduct {
                a: weights.as_ptr(),
                a_stride: ATTN_BLOCK_LEN,
                b: paired.as_ptr(),
                b_stride: dim,
                c: out[first * dim..].as_mut_ptr(),
                c_stride: dim,
                steps: keys.div_ceil(STEP),
                vectors: dim / LANES,
            };
            if are_finite {
                return product.run(count, tiles);
            }
            for (row, visible) in visible.iter().enumerate() {
                let masked = masked(paired, dim, visible);
                let product = TileProduct {
                    a: product.a.add(row * product.a_stride),
                    b: masked.as_ptr(),
                    c: product.c.add(row * product.c_stride),
                    ..product
                };
                product.run(1, tiles);
            }
        }
    }

    /// Writes `out[pair of keys][value dim]` of whole steps, 0 for keys that are not read, and returns whether all are
    /// finite numbers.
    ///
    /// # Safety
    /// As [`Self::score_tiles`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn pair_read_values(&self, out: &mut [f32]) -> bool {
        let dim = self.tile.op.value_dim;
        let read = self.places.read();
        let values = self.placed_values();
        let steps = read.end.div_ceil(STEP);
        let exponent = _mm512_set1_epi16(EXPONENT);
        let mut infinite = 0;
        let pairs = out.chunks_exact_mut(dim).enumerate();
        for (pair, out) in pairs.take(steps * TILE_ROWS) {
            let mask = seen(pair, &read);
            if mask == 0 {
                out.fill(0.0);
                continue;
            }
            let mask = _mm512_set1_epi32(mask);
            for (vector, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: a pair of keys of the block; sixteen words.
                unsafe {
                    let [words] = values.load(pair, vector);
                    let words = _mm512_and_si512(words, mask);
                    let exponents = _mm512_and_si512(words, exponent);
                    infinite |= _mm512_cmpeq_epi16_mask(exponents, exponent);
                    _mm512_storeu_si512(out.as_mut_ptr().cast(), words);
                }
            }
        }
        infinite == 0
    }
}

/// Pairs of rows of `dim`, 0 where a key is not in `visible`.
#[cold]
fn masked(paired: &[f32], dim: usize, visible: &Range<usize>) -> Vec<f32> {
    let rows = paired.chunks_exact(dim).enumerate();
    let masked = rows.flat_map(|(pair, row)| {
        let mask = seen(pair, visible).cast_unsigned();
        row.iter()
            .map(move |words| f32::from_bits(words.to_bits() & mask))
    });
    masked.collect()
}

/// Of words that are pairs, with `steps` of pairs in a row of `a`, and `vectors` of columns in `b`.
#[derive(Clone, Copy)]
struct TileProduct {
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    steps: usize,
    vectors: usize,
}

// === impl TileProduct ===

impl TileProduct {
    /// # Safety
    /// This process may use AMX; operands have so many rows, and as many columns as steps and vectors say.
    unsafe fn run(self, rows: usize, tiles: &mut Tiles) {
        // SAFETY: by the contract.
        unsafe {
            tiles.shape(rows.min(TILE_ROWS));
            for first in (0..rows).step_by(TILE_ROWS) {
                // The last rows fill a tile with some before them, whose bits are the same again.
                self.rows(first.min(rows.saturating_sub(TILE_ROWS)));
            }
        }
    }

    unsafe fn rows(self, row: usize) {
        let bytes = |floats: usize| floats * size_of::<f32>();
        let mut vector = 0;
        // SAFETY: as `run`.
        unsafe {
            let a = At {
                at: self.a.add(row * self.a_stride).cast(),
                stride: bytes(self.a_stride),
            };
            while vector < self.vectors {
                let b = At {
                    at: self.b.add(vector * LANES).cast(),
                    stride: bytes(self.b_stride),
                };
                let c = At {
                    at: self.c.add(row * self.c_stride + vector * LANES).cast(),
                    stride: bytes(self.c_stride),
                };
                if vector + 4 <= self.vectors {
                    product::<4>(a, b, c, self.steps);
                    vector += 4;
                } else {
                    product::<1>(a, b, c, self.steps);
                    vector += 1;
                }
            }
        }
    }
}
