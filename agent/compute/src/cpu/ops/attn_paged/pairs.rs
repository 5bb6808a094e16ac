//! A block's products in bfloat16, by `vdpbf16ps` or on AMX's [`tiles`]: where activations, keys and values are that, and
//! the processor has it.
//!
//! Queries and weights are rounded, as a linear's activations are; sums and weights' own sum stay f32. Of `vdpbf16ps`
//! each element is one chain over ascending pairs of dimensions or of keys, the same beside any other rows. A key that a
//! row does not see is 0 in its pair. Many rows take keys turned and values paired in memory, a few have it done in
//! registers, to the same bits.

mod few;
mod product;
mod tiles;

use super::ahead::Ahead;
use super::products::{FEW_ROWS, Products};
use crate::cpu::kv_layer::Region;
use crate::cpu::linear_product::round_pairs;
use crate::cpu::simd::Simd as _;
use crate::cpu::simd::avx512::Avx512;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::ATTN_BLOCK_LEN;
use few::PlacedValues;
use product::{PairRows, Product, Stored};
use std::arch::x86_64::_mm512_storeu_si512;
use std::ops::Range;

impl<A: Ahead> Products<'_, A> {
    /// Writes `scores[row][key]` for the keys that are read. `queries` are pairs; `turned` is memory for keys.
    ///
    /// # Safety
    /// On the queue, where the op multiplies pairs, or tiles; slices have all rows of the tile, and `turned` a block of keys.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn score_pairs(
        &self,
        queries: &[f32],
        turned: &mut [f32],
        depths: &mut Vec<Range<usize>>,
        scores: &mut [f32],
    ) {
        let key_dim = self.tile.padded_key_dim();
        let queries: *const u32 = queries[self.rows.start * key_dim..].as_ptr().cast();
        let out = scores[self.rows.start * ATTN_BLOCK_LEN..].as_mut_ptr();
        // SAFETY: by the contract.
        unsafe {
            match self.rows.len() {
                1 => self.score_few::<1>(queries, out),
                2 => self.score_few::<2>(queries, out),
                3 => self.score_few::<3>(queries, out),
                FEW_ROWS => self.score_few::<FEW_ROWS>(queries, out),
                rows => {
                    self.turn_keys(turned);
                    depths.clear();
                    depths.resize(rows, 0..key_dim);
                    let product = Product {
                        a: queries,
                        a_stride: key_dim,
                        b: Stored {
                            at: turned.as_ptr().cast(),
                            stride: ATTN_BLOCK_LEN,
                        },
                        c: out,
                        c_stride: ATTN_BLOCK_LEN,
                    };
                    product.run(depths, self.places.vectors());
                }
            }
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
        let weights =
            &mut weights[self.rows.start * ATTN_BLOCK_LEN..][..self.rows.len() * ATTN_BLOCK_LEN];
        // SAFETY: by the contract.
        unsafe {
            round_rows(weights, ATTN_BLOCK_LEN);
            if self.rows.len() <= FEW_ROWS {
                self.weigh_values(weights, visible, self.placed_values(), out);
            } else {
                self.pair_values(paired);
                let values = Stored {
                    at: paired.as_ptr().cast(),
                    stride: self.tile.op.value_dim,
                };
                self.weigh_values(weights, visible, values, out);
            }
        }
    }

    /// # Safety
    /// As [`Self::score_pairs`]; `weights` are those of the rows, as pairs.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn weigh_values(
        &self,
        weights: &[f32],
        visible: &[Range<usize>],
        values: impl PairRows,
        out: &mut [f32],
    ) {
        let dim = self.tile.op.value_dim;
        let product = Product {
            a: weights.as_ptr().cast(),
            a_stride: ATTN_BLOCK_LEN,
            b: values,
            c: out[self.rows.start * dim..].as_mut_ptr(),
            c_stride: dim,
        };
        // SAFETY: by the contract.
        unsafe { product.run(visible, dim / LANES) };
    }

    /// Writes `out[pair of dimensions][key]`; keys that are not read are 0.
    ///
    /// # Safety
    /// As [`Self::score_pairs`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn turn_keys(&self, out: &mut [f32]) {
        for first_key in (0..self.places.vectors()).map(|vector| vector * LANES) {
            for first_dim in (0..self.tile.op.layer.head_dim).step_by(2 * LANES) {
                // SAFETY: `out` has a row for each pair.
                unsafe {
                    let columns = self.turned(first_key, first_dim);
                    let out = out.as_mut_ptr();
                    let out = out.add(first_dim / 2 * ATTN_BLOCK_LEN + first_key);
                    for (i, column) in columns.into_iter().enumerate() {
                        column.store(out.add(i * ATTN_BLOCK_LEN));
                    }
                }
            }
        }
    }

    /// Sixteen pairs of dimensions, of each of sixteen keys; keys that are not read are 0.
    ///
    /// # Safety
    /// As [`Self::score_pairs`]; a key has these dimensions.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers")]
    unsafe fn turned(&self, first_key: usize, first_dim: usize) -> [Avx512; LANES] {
        let (places, base) = (self.places, self.base());
        self.ahead.ask_keys(first_key, first_dim);
        // SAFETY: the places are written slots of the region.
        unsafe {
            let mut rows = [Avx512::splat(0.0); LANES];
            if places.are_read(first_key..first_key + LANES) {
                for i in 0..LANES {
                    rows[i] = Avx512::load(base.add(places.at(first_key + i) + first_dim).cast());
                }
            } else {
                for i in 0..LANES {
                    let key = first_key + i;
                    if places.are_read(key..key + 1) {
                        rows[i] = Avx512::load(base.add(places.at(key) + first_dim).cast());
                    }
                }
            }
            Avx512::transpose(rows)
        }
    }

    /// Writes `out[pair of keys][value dim]`; what keys that are not read have there is for no row.
    ///
    /// # Safety
    /// As [`Self::score_pairs`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn pair_values(&self, out: &mut [f32]) {
        let values = self.placed_values();
        let pairs = out.chunks_exact_mut(self.tile.op.value_dim).enumerate();
        for (pair, out) in pairs.take(self.places.vectors() * LANES / 2) {
            for (vector, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // SAFETY: a pair of keys of the block; sixteen words.
                unsafe {
                    let [words] = values.load(pair, vector);
                    _mm512_storeu_si512(out.as_mut_ptr().cast(), words);
                }
            }
        }
    }

    fn placed_values(&self) -> PlacedValues<'_, A> {
        PlacedValues {
            places: self.places,
            base: self.base().wrapping_add(self.tile.op.to_value),
            ahead: self.ahead,
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

/// Rounds rows in place: their first halves become pairs.
///
/// # Safety
/// The instruction set is there; rows are whole pairs of vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn round_rows(rows: &mut [f32], len: usize) {
    for row in rows.chunks_exact_mut(len) {
        let at = row.as_mut_ptr();
        for first in (0..len).step_by(2 * LANES) {
            // SAFETY: two vectors of f32 become one, which lies before or over them.
            unsafe { round_pairs(at.add(first), at.add(first / 2)) };
        }
    }
}
