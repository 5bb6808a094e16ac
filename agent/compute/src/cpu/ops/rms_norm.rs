//! RMS norm, with the residual addition before it.

use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::RmsNorm;

pub(in crate::cpu) fn rms_norm(
    op: RmsNorm<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let RmsNorm {
        x,
        add,
        weight,
        eps,
        out,
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
                let row = {
                    // SAFETY: on the queue; each row belongs to one task.
                    let x = unsafe { x.slice_mut(span.clone()) };
                    if let Some(add) = add {
                        x.iter_mut()
                            .zip(&add[span.clone()])
                            .for_each(|(x, a)| *x += a);
                    }
                    if in_place {
                        x
                    } else {
                        // SAFETY: as above, and `out` is other memory than `x`.
                        let out = unsafe { out.slice_mut(span) };
                        out.copy_from_slice(x);
                        out
                    }
                };
                // SAFETY: the kernel has no needs of its own.
                unsafe { isa.dispatch(NormRow { row, weight, eps }) };
            }
        });
    }
}

/// Normalises one row in place. Squares are summed lane by lane, in order.
pub(super) struct NormRow<'a> {
    pub(super) row: &'a mut [f32],
    pub(super) weight: &'a [f32],
    pub(super) eps: f32,
}

impl Kernel for NormRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self { row, weight, eps } = self;
        let (chunks, rest) = row.as_chunks_mut::<LANES>();
        let (weights, weights_rest) = weight.as_chunks::<LANES>();
        // SAFETY: the instruction set by the caller; chunks have sixteen elements.
        unsafe {
            let mut squares = V::splat(0.0);
            for chunk in &*chunks {
                let x = V::load(chunk.as_ptr());
                squares = x.fma(x, squares);
            }
            let x = V::load_part(rest, 0.0);
            squares = x.fma(x, squares);
            #[allow(
                clippy::cast_precision_loss,
                reason = "a hidden size is far below 2^24"
            )]
            let len = (chunks.len() * LANES + rest.len()) as f32;
            let scale = V::splat(1.0 / (squares.sum() / len + eps).sqrt());
            for (chunk, weight) in chunks.iter_mut().zip(weights) {
                let x = V::load(chunk.as_ptr()).mul(scale);
                x.mul(V::load(weight.as_ptr())).store(chunk.as_mut_ptr());
            }
            let x = V::load_part(rest, 0.0).mul(scale);
            x.mul(V::load_part(weights_rest, 0.0)).store_part(rest);
        }
    }
}

#[cfg(test)]
mod tests;
