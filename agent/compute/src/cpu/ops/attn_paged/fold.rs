//! Folding blocks into a tile's state, in ascending order.
//!
//! State and a block's partial result have one form: per row the maximum m of the scores, the sum
//! l of exp(score − m), and the sum of exp(score − m)·v. Folding rescales both to the larger m.

use super::tile::Tile;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};

/// The state before the first block.
pub(super) fn reset(tile: &Tile<'_>, state: &mut Vec<f32>) {
    state.clear();
    state.resize(tile.padded_rows(), f32::NEG_INFINITY);
    state.resize(tile.state_len(), 0.0);
}

/// `state ← state ⊕ partial`.
pub(super) struct FoldBlock<'a> {
    pub(super) tile: &'a Tile<'a>,
    pub(super) partial: &'a [f32],
    pub(super) state: &'a mut [f32],
}

/// Writes the weighted means to the op's output.
pub(super) struct Finish<'a> {
    pub(super) tile: &'a Tile<'a>,
    pub(super) state: &'a [f32],
}

// === impl FoldBlock ===

impl Kernel for FoldBlock<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self {
            tile,
            partial,
            state,
        } = self;
        let (rows, padded_rows, dim) = (tile.rows(), tile.padded_rows(), tile.padded_dim());
        assert!(partial.len() == tile.state_len() && state.len() == tile.state_len());
        let (max, rest) = state.split_at_mut(padded_rows);
        let (sum, values) = rest.split_at_mut(padded_rows);
        let (block_max, rest) = partial.split_at(padded_rows);
        let (block_sum, block_values) = rest.split_at(padded_rows);
        for first in (0..padded_rows).step_by(LANES) {
            let (mut keep, mut take) = ([0.0; LANES], [0.0; LANES]);
            // SAFETY: the instruction set by the caller; padded rows are whole vectors.
            unsafe {
                let (a, b) = (
                    V::load(&raw const max[first]),
                    V::load(&raw const block_max[first]),
                );
                let larger = a.max(b);
                let (a, b) = (a.sub(larger).exp(), b.sub(larger).exp());
                let weighted = V::load(&raw const block_sum[first]).mul(b);
                V::load(&raw const sum[first])
                    .fma(a, weighted)
                    .store(&raw mut sum[first]);
                larger.store(&raw mut max[first]);
                a.store(keep.as_mut_ptr());
                b.store(take.as_mut_ptr());
            }
            for row in first..rows.min(first + LANES) {
                let span = row * dim..(row + 1) * dim;
                let values = values[span.clone()].as_chunks_mut::<LANES>().0;
                let block_values = block_values[span].as_chunks::<LANES>().0;
                // SAFETY: the instruction set by the caller; chunks are whole vectors.
                unsafe {
                    let (keep, take) = (V::splat(keep[row - first]), V::splat(take[row - first]));
                    for (value, block_value) in values.iter_mut().zip(block_values) {
                        let weighted = V::load(block_value.as_ptr()).mul(take);
                        V::load(value.as_ptr())
                            .fma(keep, weighted)
                            .store(value.as_mut_ptr());
                    }
                }
            }
        }
    }
}

// === impl Finish ===

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self { tile, state } = self;
        let (padded_rows, dim) = (tile.padded_rows(), tile.padded_dim());
        let (sum, values) = state[padded_rows..].split_at(padded_rows);
        let out_stride = tile.op.group * tile.op.layer.num_kv_heads * tile.op.layer.head_dim;
        for row in 0..tile.rows() {
            // SAFETY: on the queue; a row of a tile belongs to this task alone.
            let out = unsafe { tile.op.out.slice_mut(tile.span_of(row, out_stride)) };
            let (chunks, rest) = out.as_chunks_mut::<LANES>();
            let (values, values_rest) = values[row * dim..].split_at(chunks.len() * LANES);
            // SAFETY: the instruction set by the caller; a row's values are whole vectors.
            unsafe {
                let sum = V::splat(sum[row]);
                for (out, value) in chunks.iter_mut().zip(values.as_chunks::<LANES>().0) {
                    V::load(value.as_ptr()).div(sum).store(out.as_mut_ptr());
                }
                if !rest.is_empty() {
                    V::load(values_rest.as_ptr()).div(sum).store_part(rest);
                }
            }
        }
    }
}
