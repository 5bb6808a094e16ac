//! RMS norm, with the residual addition before it.

use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::{RmsNorm, WriteMode};

pub(in crate::cpu) fn rms_norm(
    op: RmsNorm<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let RmsNorm {
        x,
        add,
        weight,
        eps,
        out,
        into,
        rows,
    } = op;
    let hidden = weight.len();
    let in_place = x.begins_with(out);
    let x = x.dst::<f32>("rms_norm x", rows * hidden);
    let add = add.map(|add| add.src::<f32>("rms_norm add", rows * hidden));
    let weight = weight.src::<f32>("rms_norm weight", hidden);
    let out = out.dst::<f32>("rms_norm out", rows * hidden);
    move |exec| {
        let isa = exec.isa;
        // SAFETY: on the queue; the weight is other memory than what is written.
        let weight = unsafe { weight.slice() };
        // SAFETY: on the queue; `add` is other memory than what is written.
        let add = add.as_ref().map(|add| unsafe { add.slice() });
        exec.run_rows(rows, 2 * hidden, |range| {
            for r in range {
                let span = r * hidden..(r + 1) * hidden;
                // SAFETY: on the queue; each row belongs to one task.
                let x = unsafe { x.slice_mut(span.clone()) };
                if let Some(add) = add {
                    let add = &add[span.clone()];
                    x.iter_mut().zip(add).for_each(|(x, a)| *x += a);
                }
                let row = if in_place {
                    x
                } else {
                    // SAFETY: as above, and `out` is other memory than `x`.
                    let out = unsafe { out.slice_mut(span) };
                    match into {
                        WriteMode::Store => out.copy_from_slice(x),
                        WriteMode::Add => {
                            let add = AddNormedRow {
                                x,
                                weight,
                                eps,
                                out,
                            };
                            // SAFETY: the kernel has no needs of its own.
                            unsafe { isa.dispatch(add) };
                            continue;
                        }
                    }
                    out
                };
                // SAFETY: the kernel has no needs of its own.
                unsafe { isa.dispatch(NormRow { row, weight, eps }) };
            }
        });
    }
}

/// Normalises one row in place.
pub(super) struct NormRow<'a> {
    pub(super) row: &'a mut [f32],
    pub(super) weight: &'a [f32],
    pub(super) eps: f32,
}

/// Adds what [`NormRow`] would make of `x` to `out`, a row as long.
struct AddNormedRow<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for NormRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self { row, weight, eps } = self;
        // SAFETY: the instruction set by the caller.
        let scale: V = unsafe { scale_of(row, eps) };
        let (chunks, rest) = row.as_chunks_mut::<LANES>();
        let (weights, weights_rest) = weight.as_chunks::<LANES>();
        // SAFETY: the instruction set by the caller; chunks have sixteen elements.
        unsafe {
            for (chunk, weight) in chunks.iter_mut().zip(weights) {
                let x = V::load(chunk.as_ptr()).mul(scale);
                x.mul(V::load(weight.as_ptr())).store(chunk.as_mut_ptr());
            }
            let x = V::load_part(rest, 0.0).mul(scale);
            x.mul(V::load_part(weights_rest, 0.0)).store_part(rest);
        }
    }
}

impl Kernel for AddNormedRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self {
            x,
            weight,
            eps,
            out,
        } = self;
        // SAFETY: the instruction set by the caller.
        let scale: V = unsafe { scale_of(x, eps) };
        let (chunks, rest) = x.as_chunks::<LANES>();
        let (weights, weights_rest) = weight.as_chunks::<LANES>();
        let (outs, out_rest) = out.as_chunks_mut::<LANES>();
        // SAFETY: the instruction set by the caller; chunks have sixteen elements.
        unsafe {
            for ((chunk, weight), out) in chunks.iter().zip(weights).zip(outs) {
                let y = V::load(chunk.as_ptr()).mul(scale);
                let y = y.mul(V::load(weight.as_ptr()));
                V::load(out.as_ptr()).add(y).store(out.as_mut_ptr());
            }
            let y = V::load_part(rest, 0.0).mul(scale);
            let y = y.mul(V::load_part(weights_rest, 0.0));
            V::load_part(out_rest, 0.0).add(y).store_part(out_rest);
        }
    }
}

/// `1 / sqrt(mean(row²) + eps)`. Squares are summed lane by lane, in order.
///
/// # Safety
/// The instruction set of `V`.
#[inline(always)]
unsafe fn scale_of<V: Sixteen>(row: &[f32], eps: f32) -> V {
    let (chunks, rest) = row.as_chunks::<LANES>();
    // SAFETY: the instruction set by the caller; chunks have sixteen elements.
    unsafe {
        let mut squares = V::splat(0.0);
        for chunk in chunks {
            let x = V::load(chunk.as_ptr());
            squares = x.fma(x, squares);
        }
        let x = V::load_part(rest, 0.0);
        squares = x.fma(x, squares);
        #[allow(
            clippy::cast_precision_loss,
            reason = "a hidden size is far below 2^24"
        )]
        let len = row.len() as f32;
        V::splat(1.0 / (squares.sum() / len + eps).sqrt())
    }
}

#[cfg(test)]
mod tests;
