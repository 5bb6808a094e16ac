//! What a linear does with a finished tile: store it, add it to the residual stream, or multiply
//! `silu(gate) · up`. Every element is computed by itself, by the same operations in every
//! instruction set.

use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::simd::Simd;
use crate::ops::Epilogue;

/// # Safety
/// The instruction set is there. `out` is where the tile's first element goes, and has `columns`
/// f32 in each of `rows` rows `stride` apart, which no one else uses meanwhile. `columns` is at
/// most 32, or 16 for SwiGLU.
pub(crate) type EpilogueKernel = unsafe fn(Epilogue, &[[f32; BLOCK_LANES]], OutTile);

/// A rectangle of the output.
#[derive(Clone, Copy)]
pub(crate) struct OutTile {
    pub(crate) at: *mut f32,
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// # Safety
/// As [`EpilogueKernel`].
#[inline(always)]
pub(super) unsafe fn finish<V: Simd>(
    epilogue: Epilogue,
    tile: &[[f32; BLOCK_LANES]],
    out: OutTile,
) {
    for (row, sums) in tile.iter().enumerate().take(out.rows) {
        // SAFETY: `columns` f32 in each of `rows` rows, by the contract.
        let out = unsafe {
            let at = out.at.add(row * out.stride);
            std::slice::from_raw_parts_mut(at, out.columns)
        };
        match epilogue {
            Epilogue::Store => out.copy_from_slice(&sums[..out.len()]),
            Epilogue::AddResidual => {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out += sum;
                }
            }
            Epilogue::SwiGlu => {
                // SAFETY: the caller has the instruction set.
                let products = unsafe { swiglu::<V>(sums) };
                out.copy_from_slice(&products[..out.len()]);
            }
        }
    }
}

/// `g / (1 + exp(−g)) · u` of sixteen gates and the sixteen ups after them.
#[inline(always)]
unsafe fn swiglu<V: Simd>(sums: &[f32; BLOCK_LANES]) -> [f32; BLOCK_LANES / 2] {
    let mut products = [0.0; BLOCK_LANES / 2];
    for i in (0..BLOCK_LANES / 2).step_by(V::LANES) {
        // SAFETY: the caller has the instruction set; `V::LANES` divides 16, so every access lies
        // within the arrays.
        unsafe {
            let gate = V::load(sums.as_ptr().add(i));
            let up = V::load(sums.as_ptr().add(BLOCK_LANES / 2 + i));
            let decay = gate.mul(V::splat(-1.0)).exp();
            let silu = gate.div(V::splat(1.0).add(decay));
            silu.mul(up).store(products.as_mut_ptr().add(i));
        }
    }
    products
}
