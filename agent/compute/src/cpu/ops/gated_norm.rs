//! RMS norm of each head, with a gate.

use super::rms_norm::NormRow;
use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::cpu::simd::activation::silu;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::GatedNorm;

pub(in crate::cpu) fn gated_norm(
    op: GatedNorm<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let GatedNorm {
        x,
        z,
        weight,
        eps,
        num_heads,
        rows,
    } = op;
    let head_dim = weight.len();
    let row_len = num_heads * head_dim;
    let z_row_stride = z.row_stride;
    let x = x.dst::<f32>("gated_norm x", rows * row_len);
    let z = z.values.src::<f32>("gated_norm z", z.len(rows, row_len));
    let weight = weight.src::<f32>("gated_norm weight", head_dim);
    move |exec| {
        let isa = exec.isa;
        // SAFETY: on the queue; `x` is other memory than the weight and the gate.
        let (weight, z) = unsafe { (weight.slice(), z.slice()) };
        // A sigmoid costs about eight simple operations.
        exec.run_rows(rows, 10 * row_len, |range| {
            for r in range {
                let z = &z[r * z_row_stride..][..row_len];
                // SAFETY: on the queue; each row belongs to one task.
                let row = unsafe { x.slice_mut(r * row_len..(r + 1) * row_len) };
                for (row, z) in row.chunks_mut(head_dim).zip(z.chunks(head_dim)) {
                    // SAFETY: the kernel has no needs of its own.
                    unsafe {
                        isa.dispatch(GatedRow {
                            row,
                            weight,
                            eps,
                            z,
                        })
                    };
                }
            }
        });
    }
}

/// Norms one head in place and multiplies it by its gate.
struct GatedRow<'a> {
    row: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
    z: &'a [f32],
}

impl Kernel for GatedRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self {
            row,
            weight,
            eps,
            z,
        } = self;
        // SAFETY: the instruction set by the caller; chunks have at most sixteen elements.
        unsafe {
            let normed = NormRow {
                row: &mut *row,
                weight,
                eps,
            };
            normed.run::<V>();
            for (x, z) in row.chunks_mut(LANES).zip(z.chunks(LANES)) {
                let gate = silu(V::load_up_to(z));
                V::load_up_to(x).mul(gate).store_up_to(x);
            }
        }
    }
}

#[cfg(test)]
mod tests;
