//! A product with a packed weight, and what becomes of it.

use super::rms_norm::RmsNorm;
use crate::buffer::DeviceBuffer;
use crate::device_types::{DeviceTypes, Matrix};
use crate::dtype::DType;

/// `y = x·Wᵀ`, then the epilogue into `out`. Logits are a linear over the gathered last rows.
#[derive(Debug)]
pub struct Linear<'a, B: DeviceTypes> {
    /// `[rows][k]`.
    pub x: &'a B::Buffer,
    pub weight: &'a B::Weight,
    pub epilogue: Epilogue,
    /// `[rows][n]`, or `[rows][n / 2]` with SwiGLU. Shares no memory with `x`.
    pub out: &'a B::Buffer,
    pub rows: usize,
}

/// What a linear does with `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// `out = y`.
    Store,
    /// `out += y`: `out` is the residual stream.
    AddResidual,
    /// `out[i] = silu(y[2i]) · y[2i + 1]`, for a weight whose gate and up rows are interleaved.
    SwiGlu,
}

// === impl Linear ===

impl<B: DeviceTypes> Linear<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            x,
            weight,
            epilogue,
            out,
            rows,
        } = *self;
        let (n, k) = (weight.n(), weight.k());
        assert!(
            !epilogue.joins_pairs() || n.is_multiple_of(2),
            "linear: gate and up have {n} rows together"
        );
        x.expect_elements("linear x", &[activations], rows * k);
        let out_len = rows * epilogue.out_len(n);
        out.expect_elements("linear out", &[activations, DType::F32], out_len);
        out.expect_apart("linear out", &[x]);
    }

    /// # Panics
    /// When the rows are not those that `norm` makes.
    pub(crate) fn check_follows(&self, norm: &RmsNorm<'_, B>) {
        assert!(
            self.x.begins_with(norm.out)
                && norm.rows == self.rows
                && norm.weight.len() == self.weight.k(),
            "norm_linear: the linear's x is not what the norm makes"
        );
    }
}

// === impl Epilogue ===

impl Epilogue {
    /// Whether it makes one output of a gate and an up.
    pub fn joins_pairs(self) -> bool {
        match self {
            Self::Store | Self::AddResidual => false,
            Self::SwiGlu => true,
        }
    }

    /// Length of an output row of a weight of `n` rows.
    pub fn out_len(self, n: usize) -> usize {
        if self.joins_pairs() { n / 2 } else { n }
    }
}
