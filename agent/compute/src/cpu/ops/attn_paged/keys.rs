//! A block's keys, turned so that a vector holds one dimension of sixteen keys, and its values, in
//! place where they lie as f32 or else widened.

mod score;

use super::ahead::Ahead;
use super::op::Attention;
use super::tile::Tile;
use crate::cpu::kv_layer::{KvLayer, Region};
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::ATTN_BLOCK_LEN;
use std::ops::Range;

/// Where each key of a block lies in the region: element of its K; for those that are not read, that of one that is.
#[derive(Clone)]
pub(super) struct KeyPlaces {
    at: [usize; ATTN_BLOCK_LEN],
    keys: Range<usize>,
}

// === impl KeyPlaces ===

impl KeyPlaces {
    pub(super) fn new(tile: &Tile<'_>, block: usize) -> Self {
        let layer = &tile.op.layer;
        let mut places = Self {
            at: [0; ATTN_BLOCK_LEN],
            keys: tile.keys_in(block),
        };
        let Range { start: mut i, end } = places.keys;
        while i < end {
            let position = block * ATTN_BLOCK_LEN + i;
            let (page, slot) = (position / layer.page_size, position % layer.page_size);
            let start = layer.k_at(tile.pages[page] as usize, tile.kv_head);
            let page_end = end.min(i + layer.page_size - slot);
            let mut next = start + slot * layer.slot_stride;
            for at in &mut places.at[i..page_end] {
                *at = next;
                next += layer.slot_stride;
            }
            i = page_end;
        }
        // Pages of others may be written meanwhile.
        let Range { start, end } = places.keys;
        if let Some(last) = places.at[start..end].last().copied() {
            places.at[..start].fill(last);
            places.at[end..].fill(last);
        }
        places
    }

    /// Where a key begins, or in place of one that is not read, another. Some key is read.
    #[inline(always)]
    pub(super) fn at(&self, key: usize) -> usize {
        self.at[key]
    }

    /// Those of the block that are read.
    pub(super) fn read(&self) -> Range<usize> {
        self.keys.clone()
    }

    /// Keys of the block, in whole vectors, the last of which is read.
    pub(super) fn vectors(&self) -> usize {
        self.keys.end.div_ceil(LANES)
    }

    /// Writes `out[d][key]` for the keys of [`Self::vectors`]; those that are not read are zero.
    ///
    /// # Safety
    /// On the queue, with the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn transpose_keys<V: Sixteen>(
        &self,
        layer: &KvLayer,
        out: &mut [f32],
        ahead: &impl Ahead,
    ) {
        assert!(out.len() >= layer.head_dim.next_multiple_of(LANES) * ATTN_BLOCK_LEN);
        for first_key in (0..self.keys.end).step_by(LANES) {
            let is_read = self.within(first_key) == (first_key..first_key + LANES);
            for first_dim in (0..layer.head_dim).step_by(LANES) {
                let dims = LANES.min(layer.head_dim - first_dim);
                ahead.ask_keys(first_key, first_dim);
                // SAFETY: the instruction set by the caller; the places are written slots of the
                // region; `out` has a row for every padded dimension.
                unsafe {
                    let rows = if is_read && dims == LANES {
                        let at = self.at[first_key..].as_ptr();
                        load_sixteen::<V>(layer, at, first_dim)
                    } else {
                        self.load_some::<V>(layer, first_key, first_dim, dims)
                    };
                    let columns = V::transpose(rows);
                    let out = out.as_mut_ptr().add(first_dim * ATTN_BLOCK_LEN + first_key);
                    for (d, column) in columns.into_iter().enumerate() {
                        column.store(out.add(d * ATTN_BLOCK_LEN));
                    }
                }
            }
        }
    }

    /// Sixteen keys, or those of them that are read.
    ///
    /// # Safety
    /// As [`load`].
    #[inline(always)]
    unsafe fn load_some<V: Sixteen>(
        &self,
        layer: &KvLayer,
        first_key: usize,
        first_dim: usize,
        dims: usize,
    ) -> [V; LANES] {
        // SAFETY: the caller's.
        unsafe {
            let mut rows = [V::splat(0.0); LANES];
            let keys = self.within(first_key);
            let rows_of_keys = rows[keys.start - first_key..].iter_mut();
            for (row, at) in rows_of_keys.zip(&self.at[keys]) {
                *row = load::<V>(layer, 0, at + first_dim, dims);
            }
            rows
        }
    }

    /// The keys that are read among the sixteen from `first` on.
    fn within(&self, first: usize) -> Range<usize> {
        let bounded = |key: usize| key.clamp(first, first + LANES);
        bounded(self.keys.start)..bounded(self.keys.end)
    }

    /// Where the value of each key begins, in whole vectors: in the pool itself, or in `out` after
    /// widening.
    ///
    /// # Safety
    /// On the queue, with the instruction set of `V`. The pointers hold as long as `out` is not
    /// touched; those of keys that are not read are null.
    #[inline(always)]
    pub(super) unsafe fn values<V: Sixteen>(
        &self,
        op: &Attention,
        out: &mut [f32],
    ) -> [*const f32; ATTN_BLOCK_LEN] {
        let (layer, value_dim) = (&op.layer, op.value_dim);
        let dim = value_dim.next_multiple_of(LANES);
        let mut values = [std::ptr::null(); ATTN_BLOCK_LEN];
        let is_whole = dim == value_dim;
        // SAFETY: the instruction set by the caller; the places are written slots of the region.
        unsafe {
            match &layer.region {
                Region::F32(region) if is_whole => {
                    for key in self.keys.clone() {
                        values[key] = region.as_ptr().add(self.at[key] + op.to_value);
                    }
                }
                Region::F16(region) if is_whole => {
                    let from = region.as_ptr().add(op.to_value);
                    self.widen::<V>(dim, out, &mut values, |at| V::load_f16(from.add(at)));
                }
                Region::BF16(region) if is_whole => {
                    let from = region.as_ptr().add(op.to_value);
                    self.widen::<V>(dim, out, &mut values, |at| V::load_bf16(from.add(at)));
                }
                Region::F32(_) | Region::F16(_) | Region::BF16(_) | Region::F8E4M3(_) => {
                    // A value that is a part of its key has the key's scale.
                    let kv = usize::from(op.to_value > 0);
                    for key in self.keys.clone() {
                        let at = self.at[key] + op.to_value;
                        let row = &mut out[key * dim..(key + 1) * dim];
                        for (v, chunk) in row.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                            let dims = LANES.min(value_dim - v * LANES);
                            load::<V>(layer, kv, at + v * LANES, dims).store(chunk.as_mut_ptr());
                        }
                        values[key] = row.as_ptr();
                    }
                }
            }
        }
        values
    }

    /// Writes rows of `dim` elements, whole vectors, to `out`; `load` yields the vector that begins at a place.
    ///
    /// # Safety
    /// As [`load`], for every vector.
    #[inline(always)]
    unsafe fn widen<V: Sixteen>(
        &self,
        dim: usize,
        out: &mut [f32],
        values: &mut [*const f32; ATTN_BLOCK_LEN],
        load: impl Fn(usize) -> V,
    ) {
        assert!(out.len() >= ATTN_BLOCK_LEN * dim);
        for key in self.keys.clone() {
            // SAFETY: the caller's; `out` has a row for every key.
            unsafe {
                let row = out.as_mut_ptr().add(key * dim);
                for first in (0..dim).step_by(LANES) {
                    load(self.at[key] + first).store(row.add(first));
                }
                values[key] = row;
            }
        }
    }
}

/// A whole vector of each of sixteen keys, which begin at `at`, from `first_dim` on.
///
/// # Safety
/// As [`load`].
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "a closure or an iterator over vectors may be compiled without their instructions"
)]
unsafe fn load_sixteen<V: Sixteen>(
    layer: &KvLayer,
    at: *const usize,
    first_dim: usize,
) -> [V; LANES] {
    let mut rows;
    // SAFETY: the caller's.
    unsafe {
        rows = [V::splat(0.0); LANES];
        match &layer.region {
            Region::F32(region) => {
                for i in 0..LANES {
                    rows[i] = V::load(region.as_ptr().add(*at.add(i) + first_dim));
                }
            }
            Region::F16(region) => {
                for i in 0..LANES {
                    rows[i] = V::load_f16(region.as_ptr().add(*at.add(i) + first_dim));
                }
            }
            Region::BF16(region) => {
                for i in 0..LANES {
                    rows[i] = V::load_bf16(region.as_ptr().add(*at.add(i) + first_dim));
                }
            }
            Region::F8E4M3(_) => {
                for i in 0..LANES {
                    rows[i] = load::<V>(layer, 0, *at.add(i) + first_dim, LANES);
                }
            }
        }
    }
    rows
}

/// `dims` elements of a K (`kv` 0) or a V (`kv` 1) of the region from `at`, the other lanes zero.
///
/// # Safety
/// On the queue, with the instruction set of `V`; the elements lie in the region.
#[inline(always)]
unsafe fn load<V: Sixteen>(layer: &KvLayer, kv: usize, at: usize, dims: usize) -> V {
    // SAFETY: the caller's; a part is copied before it is loaded, so nothing past it is read.
    unsafe {
        match &layer.region {
            Region::F32(region) if dims == LANES => V::load(region.as_ptr().add(at)),
            Region::F16(region) if dims == LANES => V::load_f16(region.as_ptr().add(at)),
            Region::BF16(region) if dims == LANES => V::load_bf16(region.as_ptr().add(at)),
            Region::F8E4M3(region) => {
                let values = if dims == LANES {
                    V::load_f8_part(region.as_ptr().add(at))
                } else {
                    V::load_f8_part(padded(region.slice_mut(at..at + dims)).as_ptr())
                };
                values.mul(V::splat(layer.f8_factor(kv)))
            }
            Region::F32(region) => V::load_part(region.slice_mut(at..at + dims), 0.0),
            Region::F16(region) => V::load_f16(padded(region.slice_mut(at..at + dims)).as_ptr()),
            Region::BF16(region) => V::load_bf16(padded(region.slice_mut(at..at + dims)).as_ptr()),
        }
    }
}

fn padded<T: Copy + Default>(part: &[T]) -> [T; LANES] {
    let mut lanes = [T::default(); LANES];
    lanes[..part.len()].copy_from_slice(part);
    lanes
}
