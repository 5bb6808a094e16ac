//! What a linear does with a finished tile: add its bias, then store it, add it to the residual
//! stream, cap it, or join gates and ups. Every element is computed by itself, by the same operations in every
//! instruction set.

use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::simd::Simd;
use crate::cpu::simd::activation::{at_least, at_most, gelu_tanh, sigmoid, silu, soft_cap};
use crate::ops::Epilogue;

/// # Safety
/// The instruction set is there. `out` is where the tile's first element goes, and has `columns`
/// f32 in each of `rows` rows `stride` apart, which no one else uses meanwhile. `columns` is at
/// most 32, or 16 where gate and up are joined.
pub(crate) type EpilogueKernel =
    unsafe fn(Epilogue, bias: Option<&BlockRow>, tile: &[BlockRow], OutTile);

/// A value for each lane of a block.
pub(crate) type BlockRow = [f32; BLOCK_LANES];
/// A block's outputs of gates and ups: sixteen gates, then their ups.
type Joined = [f32; BLOCK_LANES / 2];

/// A rectangle of the output.
#[derive(Clone, Copy)]
pub(crate) struct OutTile {
    pub(crate) at: *mut f32,
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// How a gate and its up become one output.
trait Join {
    unsafe fn join<V: Simd>(&self, gate: V, up: V) -> V;
}

struct SwiGlu;
struct GeluTanhGlu;
struct ClampedSwiGlu {
    alpha: f32,
    limit: f32,
}

impl Join for SwiGlu {
    #[inline(always)]
    unsafe fn join<V: Simd>(&self, gate: V, up: V) -> V {
        // SAFETY: the caller has the instruction set.
        unsafe { silu(gate).mul(up) }
    }
}

impl Join for GeluTanhGlu {
    #[inline(always)]
    unsafe fn join<V: Simd>(&self, gate: V, up: V) -> V {
        // SAFETY: the caller has the instruction set.
        unsafe { gelu_tanh(gate).mul(up) }
    }
}

impl Join for ClampedSwiGlu {
    #[inline(always)]
    unsafe fn join<V: Simd>(&self, gate: V, up: V) -> V {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let gate = at_most(gate, self.limit);
            let up = at_least(at_most(up, self.limit), -self.limit);
            let swish = gate.mul(sigmoid(gate.mul(V::splat(self.alpha))));
            up.add(V::splat(1.0)).mul(swish)
        }
    }
}

/// # Safety
/// As [`EpilogueKernel`].
#[inline(always)]
pub(super) unsafe fn finish<V: Simd>(
    epilogue: Epilogue,
    bias: Option<&BlockRow>,
    tile: &[BlockRow],
    out: OutTile,
) {
    for (row, sums) in tile.iter().enumerate().take(out.rows) {
        // SAFETY: `columns` f32 in each of `rows` rows, by the contract.
        let out = unsafe {
            let at = out.at.add(row * out.stride);
            std::slice::from_raw_parts_mut(at, out.columns)
        };
        let biased = bias.map(|bias| std::array::from_fn(|lane| sums[lane] + bias[lane]));
        let sums = biased.as_ref().unwrap_or(sums);
        // SAFETY: the caller has the instruction set.
        unsafe {
            match epilogue {
                Epilogue::Store => store(sums, out),
                Epilogue::AddResidual => {
                    for (out, sum) in out.iter_mut().zip(sums) {
                        *out += sum;
                    }
                }
                Epilogue::SwiGlu => store_joined::<V>(&SwiGlu, sums, out),
                Epilogue::GeluTanhGlu => store_joined::<V>(&GeluTanhGlu, sums, out),
                Epilogue::ClampedSwiGlu { alpha, limit } => {
                    store_joined::<V>(&ClampedSwiGlu { alpha, limit }, sums, out);
                }
                Epilogue::SoftCap(cap) => {
                    store(&capped::<V>(sums, cap), out);
                }
            }
        }
    }
}

/// Joins sixteen gates and the sixteen ups after them.
#[inline(always)]
unsafe fn store_joined<V: Simd>(join: &impl Join, sums: &BlockRow, out: &mut [f32]) {
    let mut joined: Joined = [0.0; BLOCK_LANES / 2];
    for i in (0..joined.len()).step_by(V::LANES) {
        // SAFETY: the caller has the instruction set; `V::LANES` divides 16, so every access lies
        // within the arrays.
        unsafe {
            let gate = V::load(sums.as_ptr().add(i));
            let up = V::load(sums.as_ptr().add(BLOCK_LANES / 2 + i));
            join.join(gate, up).store(joined.as_mut_ptr().add(i));
        }
    }
    store(&joined, out);
}

/// The first of `values`, mostly all of them.
#[inline(always)]
fn store<const N: usize>(values: &[f32; N], out: &mut [f32]) {
    match <&mut [f32; N]>::try_from(&mut *out) {
        Ok(out) => *out = *values,
        Err(_) => out.copy_from_slice(&values[..out.len()]),
    }
}

#[inline(always)]
unsafe fn capped<V: Simd>(sums: &BlockRow, cap: f32) -> BlockRow {
    let mut capped = [0.0; BLOCK_LANES];
    for i in (0..BLOCK_LANES).step_by(V::LANES) {
        // SAFETY: the caller has the instruction set; `V::LANES` divides 32.
        unsafe {
            let values = soft_cap(V::load(sums.as_ptr().add(i)), cap);
            values.store(capped.as_mut_ptr().add(i));
        }
    }
    capped
}
