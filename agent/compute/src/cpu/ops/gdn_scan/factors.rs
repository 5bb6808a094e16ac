//! What a row's columns have in common: per v head the decay and β, per k head the factors that
//! make q and k of length one.

use crate::cpu::simd::activation::{sigmoid, softplus};
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::{GdnShape, L2_EPS};

/// One row, taken apart.
pub(super) struct Factors<'a> {
    shape: &'a GdnShape,
    row: &'a [f32],
}

// === impl Factors ===

impl<'a> Factors<'a> {
    /// Elements of a row.
    pub(super) fn width(shape: &GdnShape) -> usize {
        2 * (shape.num_v_heads + shape.num_k_heads)
    }

    pub(super) fn of_row(shape: &'a GdnShape, factors: &'a [f32], row: usize) -> Self {
        let width = Self::width(shape);
        let row = &factors[row * width..(row + 1) * width];
        Self { shape, row }
    }

    /// What the state is multiplied by.
    pub(super) fn decay(&self, v_head: usize) -> f32 {
        self.row[v_head]
    }

    pub(super) fn beta(&self, v_head: usize) -> f32 {
        self.row[self.shape.num_v_heads + v_head]
    }

    pub(super) fn q_scale(&self, k_head: usize) -> f32 {
        self.row[2 * self.shape.num_v_heads + k_head]
    }

    pub(super) fn k_scale(&self, k_head: usize) -> f32 {
        self.row[2 * self.shape.num_v_heads + self.shape.num_k_heads + k_head]
    }
}

/// Computes one row.
pub(super) struct FactorRow<'a> {
    pub(super) shape: &'a GdnShape,
    /// The heads of q, those of k, and what follows.
    pub(super) qk: &'a [f32],
    pub(super) a: &'a [f32],
    pub(super) b: &'a [f32],
    pub(super) decay: &'a [f32],
    pub(super) dt_bias: &'a [f32],
    pub(super) out: &'a mut [f32],
}

impl Kernel for FactorRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let GdnShape {
            num_k_heads,
            num_v_heads,
            k_dim,
            ..
        } = *self.shape;
        let (gates, scales) = self.out.split_at_mut(2 * num_v_heads);
        let (decays, betas) = gates.split_at_mut(num_v_heads);
        for first in (0..num_v_heads).step_by(LANES) {
            let span = first..num_v_heads.min(first + LANES);
            // SAFETY: the instruction set by the caller; spans have at most sixteen elements.
            unsafe {
                let load = |values: &[f32]| V::load_up_to(&values[span.clone()]);
                let step = softplus(load(self.a).add(load(self.dt_bias)));
                let decay = load(self.decay).mul(step).exp();
                decay.store_up_to(&mut decays[span.clone()]);
                sigmoid(load(self.b)).store_up_to(&mut betas[span.clone()]);
            }
        }
        let (q_scales, k_scales) = scales.split_at_mut(num_k_heads);
        let mut heads = self.qk.chunks_exact(k_dim);
        #[allow(clippy::cast_precision_loss, reason = "head sizes are below 2^24")]
        let q_scale = 1.0 / (k_dim as f32).sqrt();
        for scale in q_scales {
            let head = heads.next().expect("a row has all heads of q");
            // SAFETY: the instruction set by the caller.
            *scale = unsafe { inverse_length::<V>(head) } * q_scale;
        }
        for scale in k_scales {
            let head = heads.next().expect("a row has all heads of k");
            // SAFETY: the instruction set by the caller.
            *scale = unsafe { inverse_length::<V>(head) };
        }
    }
}

/// `(Σx² + 1e-6)^-½`. Squares are summed lane by lane, in order.
///
/// # Safety
/// A processor with the instruction set of `V`.
#[inline(always)]
unsafe fn inverse_length<V: Sixteen>(x: &[f32]) -> f32 {
    // SAFETY: the caller's; chunks have at most sixteen elements.
    unsafe {
        let mut squares = V::splat(0.0);
        for chunk in x.chunks(LANES) {
            let x = V::load_up_to(chunk);
            squares = x.fma(x, squares);
        }
        1.0 / (squares.sum() + L2_EPS).sqrt()
    }
}
