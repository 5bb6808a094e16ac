//! Folding blocks into a tile's state, in ascending order.
//!
//! State and a block's partial result have one form: per row the maximum m of the scores, the sum
//! l of exp(score − m), and the sum of exp(score − m)·v. Folding rescales both to the larger m. A row
//! that sees nothing of a block keeps its state bit for bit: which blocks pass by depends on the rows
//! beside it.

use super::tile::Tile;
use crate::cpu::simd::activation::sigmoid;
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
        let (rows, padded_rows, dim) = (tile.rows(), tile.padded_rows(), tile.padded_value_dim());
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
                // Where nothing has been seen yet, both weights are 0 and not exp(−∞ + ∞).
                let finite = larger.max(V::splat(f32::MIN));
                let (a, b) = (a.sub(finite).exp(), b.sub(finite).exp());
                let weighted = V::load(&raw const block_sum[first]).mul(b);
                V::load(&raw const sum[first])
                    .fma(a, weighted)
                    .store(&raw mut sum[first]);
                larger.store(&raw mut max[first]);
                a.store(keep.as_mut_ptr());
                b.store(take.as_mut_ptr());
            }
            for row in first..rows.min(first + LANES) {
                if block_max[row] == f32::NEG_INFINITY {
                    continue;
                }
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
        let (op, padded_rows, dim) = (tile.op, tile.padded_rows(), tile.padded_value_dim());
        let (max, rest) = state.split_at(padded_rows);
        let (sum, values) = rest.split_at(padded_rows);
        let out_stride = op.group * op.layer.num_kv_heads * op.value_dim;
        // SAFETY: on the queue; the op writes only its output.
        let sinks = op.sinks.as_ref().map(|sinks| unsafe { sinks.slice() });
        for row in 0..tile.rows() {
            // SAFETY: on the queue; a row of a tile belongs to this task alone.
            let out = unsafe {
                op.out
                    .slice_mut(tile.span_of(row, out_stride, op.value_dim))
            };
            let values = &values[row * dim..(row + 1) * dim];
            // SAFETY: the instruction set by the caller; a row's values are whole vectors.
            unsafe {
                let sum = V::splat(sum[row]);
                match sinks.map(|sinks| sinks[tile.head_of(row)]) {
                    None => divide(values, sum, out),
                    Some(sink) => {
                        let (keep, sum) = with_sink(V::splat(max[row]), sum, V::splat(sink));
                        divide_kept(values, keep, sum, out);
                    }
                }
                if let Some(gate) = &op.gate {
                    let span = tile.span_of(row, gate.row_stride, op.value_dim);
                    multiply_by_sigmoid::<V>(&gate.rows.slice()[span], out);
                }
            }
        }
    }
}

/// Folds a score without a value: what remains of the values, and the new sum of weights.
///
/// # Safety
/// The instruction set of `V`.
#[inline(always)]
unsafe fn with_sink<V: Sixteen>(max: V, sum: V, sink: V) -> (V, V) {
    // SAFETY: the caller's.
    unsafe {
        let larger = max.max(sink);
        let (keep, take) = (max.sub(larger).exp(), sink.sub(larger).exp());
        (keep, sum.fma(keep, take))
    }
}

/// `out = values / sum`. There are as many values as `out` has, in whole vectors.
///
/// # Safety
/// The instruction set of `V`.
#[inline(always)]
unsafe fn divide<V: Sixteen>(values: &[f32], sum: V, out: &mut [f32]) {
    let (chunks, rest) = out.as_chunks_mut::<LANES>();
    let (values, values_rest) = values.split_at(chunks.len() * LANES);
    // SAFETY: the caller's; chunks are whole vectors.
    unsafe {
        for (out, value) in chunks.iter_mut().zip(values.as_chunks::<LANES>().0) {
            V::load(value.as_ptr()).div(sum).store(out.as_mut_ptr());
        }
        if !rest.is_empty() {
            V::load(values_rest.as_ptr()).div(sum).store_part(rest);
        }
    }
}

/// `out = values · keep / sum`.
///
/// # Safety
/// As [`divide`].
#[inline(always)]
unsafe fn divide_kept<V: Sixteen>(values: &[f32], keep: V, sum: V, out: &mut [f32]) {
    let (chunks, rest) = out.as_chunks_mut::<LANES>();
    let (values, values_rest) = values.split_at(chunks.len() * LANES);
    // SAFETY: the caller's; chunks are whole vectors.
    unsafe {
        for (out, value) in chunks.iter_mut().zip(values.as_chunks::<LANES>().0) {
            let kept = V::load(value.as_ptr()).mul(keep);
            kept.div(sum).store(out.as_mut_ptr());
        }
        if !rest.is_empty() {
            let kept = V::load(values_rest.as_ptr()).mul(keep);
            kept.div(sum).store_part(rest);
        }
    }
}

/// `out *= sigmoid(gate)`, of as many elements.
///
/// # Safety
/// The instruction set of `V`.
#[inline(always)]
unsafe fn multiply_by_sigmoid<V: Sixteen>(gate: &[f32], out: &mut [f32]) {
    let (chunks, rest) = out.as_chunks_mut::<LANES>();
    let (gates, gates_rest) = gate.as_chunks::<LANES>();
    // SAFETY: the caller's; chunks are whole vectors.
    unsafe {
        for (out, gate) in chunks.iter_mut().zip(gates) {
            let gate = sigmoid(V::load(gate.as_ptr()));
            V::load(out.as_ptr()).mul(gate).store(out.as_mut_ptr());
        }
        let gate = sigmoid(V::load_part(gates_rest, 0.0));
        V::load_part(rest, 0.0).mul(gate).store_part(rest);
    }
}
