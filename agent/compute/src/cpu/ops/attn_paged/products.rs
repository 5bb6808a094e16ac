//! A block's two products: queries by keys, and weights by values.
//!
//! Many rows take keys turned and values widened, in memory, once for all of them. A few rows multiply both as they
//! are loaded, in registers. Either way each element is one fma chain, over ascending dimensions or keys, to the
//! same bits.

use super::ahead::Ahead;
use super::keys::KeyPlaces;
use super::matmul::{Matmul, Rows};
use super::op::Attention;
use super::tile::Tile;
use crate::cpu::kv_layer::Region;
use crate::cpu::simd::halves::{Bf16, F16, Half};
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::ATTN_BLOCK_LEN;
use std::marker::PhantomData;
use std::ops::Range;

/// Rows for which turning and widening in memory costs more than it saves.
pub(super) const FEW_ROWS: usize = 4;

/// The products of a block that `rows` of a tile see any of.
pub(super) struct Products<'a, A> {
    pub(super) tile: &'a Tile<'a>,
    pub(super) rows: Range<usize>,
    pub(super) places: &'a KeyPlaces,
    pub(super) ahead: &'a A,
}

/// Keys, turned: a row for each dimension.
struct Turned(*const f32);

/// Values as f32.
struct Values<'a, A> {
    at: &'a [*const f32; ATTN_BLOCK_LEN],
    ahead: &'a A,
}

/// Values of two bytes in the pool.
struct Halves<'a, A, F> {
    places: &'a KeyPlaces,
    /// The region, from the first key's value.
    base: *const u16,
    ahead: &'a A,
    format: PhantomData<F>,
}

// === impl Rows ===

impl Rows for Turned {
    type Place = *const f32;

    #[inline(always)]
    unsafe fn row(&self, i: usize) -> *const f32 {
        // SAFETY: the caller's.
        unsafe { self.0.add(i * ATTN_BLOCK_LEN) }
    }

    #[inline(always)]
    unsafe fn load<V: Sixteen>(row: *const f32, n: usize) -> V {
        // SAFETY: the caller's.
        unsafe { V::load(row.add(n * LANES)) }
    }
}

impl<A: Ahead> Rows for Values<'_, A> {
    type Place = *const f32;

    #[inline(always)]
    unsafe fn row(&self, i: usize) -> *const f32 {
        self.ahead.ask_value(i);
        self.at[i]
    }

    #[inline(always)]
    unsafe fn load<V: Sixteen>(row: *const f32, n: usize) -> V {
        // SAFETY: the caller's.
        unsafe { V::load(row.add(n * LANES)) }
    }
}

impl<A: Ahead, F: Half> Rows for Halves<'_, A, F> {
    type Place = *const u16;

    #[inline(always)]
    unsafe fn row(&self, i: usize) -> *const u16 {
        self.ahead.ask_value(i);
        // SAFETY: the caller's.
        unsafe { self.base.add(self.places.at(i)) }
    }

    #[inline(always)]
    unsafe fn load<V: Sixteen>(row: *const u16, n: usize) -> V {
        // SAFETY: the caller's.
        unsafe { F::load(row.add(n * LANES)) }
    }
}

// === impl Products ===

impl<A: Ahead> Products<'_, A> {
    /// Writes `scores[row][key]` for the keys that are read: queries `[row][key dim]` times keys. `turned` is memory for keys.
    ///
    /// # Safety
    /// On the queue, with the instruction set of `V`; slices have all rows of the tile, and `turned` a block of keys.
    #[inline(always)]
    pub(super) unsafe fn score<V: Sixteen>(
        &self,
        queries: &[f32],
        turned: &mut [f32],
        depths: &mut Vec<Range<usize>>,
        scores: &mut [f32],
    ) {
        let (layer, key_dim) = (&self.tile.op.layer, self.tile.padded_key_dim());
        // SAFETY: by the contract.
        unsafe {
            let queries = queries.as_ptr().add(self.rows.start * key_dim);
            let out = scores.as_mut_ptr().add(self.rows.start * ATTN_BLOCK_LEN);
            let (places, ahead) = (self.places, self.ahead);
            match self.rows.len() {
                1 => places.score::<V, 1>(layer, queries, key_dim, out, ahead),
                2 => places.score::<V, 2>(layer, queries, key_dim, out, ahead),
                3 => places.score::<V, 3>(layer, queries, key_dim, out, ahead),
                FEW_ROWS => places.score::<V, FEW_ROWS>(layer, queries, key_dim, out, ahead),
                rows => {
                    places.transpose_keys::<V>(layer, turned, ahead);
                    depths.clear();
                    depths.resize(rows, 0..layer.head_dim);
                    let product = Matmul {
                        a: queries,
                        a_stride: key_dim,
                        b: Turned(turned.as_ptr()),
                        c: out,
                        c_stride: ATTN_BLOCK_LEN,
                        vectors: places.vectors(),
                        depths,
                        is_windowed: false,
                    };
                    product.run::<V>();
                }
            }
        }
    }

    /// Writes `out[row][value dim]`: weights `[row][key]` times values, of the keys that `visible` says of each row.
    /// `widened` is memory for values.
    ///
    /// # Safety
    /// As [`Self::score`].
    #[inline(always)]
    pub(super) unsafe fn weigh<V: Sixteen>(
        &self,
        weights: &[f32],
        visible: &[Range<usize>],
        widened: &mut [f32],
        out: &mut [f32],
    ) {
        let Attention {
            layer,
            value_dim,
            to_value,
            ..
        } = self.tile.op;
        let is_whole = value_dim.is_multiple_of(LANES);
        // SAFETY: by the contract.
        unsafe {
            match &layer.region {
                Region::F16(region) if self.rows.len() <= FEW_ROWS && is_whole => {
                    let values = self.halves::<F16>(region.as_ptr().add(*to_value));
                    self.weigh_rows::<V>(values, weights, visible, out);
                }
                Region::BF16(region) if self.rows.len() <= FEW_ROWS && is_whole => {
                    let values = self.halves::<Bf16>(region.as_ptr().add(*to_value));
                    self.weigh_rows::<V>(values, weights, visible, out);
                }
                Region::F32(_) | Region::F16(_) | Region::BF16(_) | Region::F8E4M3(_) => {
                    let values = Values {
                        at: &self.places.values::<V>(self.tile.op, widened),
                        ahead: self.ahead,
                    };
                    self.weigh_rows::<V>(values, weights, visible, out);
                }
            }
        }
    }

    fn halves<F>(&self, base: *const u16) -> Halves<'_, A, F> {
        Halves {
            places: self.places,
            base,
            ahead: self.ahead,
            format: PhantomData,
        }
    }

    /// # Safety
    /// As [`Self::weigh`].
    #[inline(always)]
    unsafe fn weigh_rows<V: Sixteen>(
        &self,
        values: impl Rows,
        weights: &[f32],
        visible: &[Range<usize>],
        out: &mut [f32],
    ) {
        let dim = self.tile.padded_value_dim();
        // SAFETY: by the contract.
        unsafe {
            let product = Matmul {
                a: weights.as_ptr().add(self.rows.start * ATTN_BLOCK_LEN),
                a_stride: ATTN_BLOCK_LEN,
                b: values,
                c: out.as_mut_ptr().add(self.rows.start * dim),
                c_stride: dim,
                vectors: dim / LANES,
                depths: visible,
                is_windowed: visible.last().is_some_and(|keys| keys.start > 0),
            };
            product.run::<V>();
        }
    }
}
