//! A product with a packed weight, and what becomes of it.

use super::needs::OpFeature;
use super::rms_norm::RmsNorm;
use crate::buffer::DeviceBuffer;
use crate::device_types::{DeviceTypes, Matrix};
use crate::dtype::DType;

/// `y = x·Wᵀ + bias`, then the epilogue into `out`. Logits are a linear over the gathered last rows.
#[derive(Debug)]
pub struct Linear<'a, B: DeviceTypes> {
    /// `[rows][k]`.
    pub x: &'a B::Buffer,
    pub weight: &'a B::Weight,
    /// `F32 [n]`, in the order of the weight's rows: gate and up in turn where they are interleaved.
    pub bias: Option<&'a B::Buffer>,
    pub epilogue: Epilogue,
    /// `[rows][n]`, or `[rows][n / 2]` where gate and up are joined. Shares no memory with `x`.
    pub out: &'a B::Buffer,
    pub rows: usize,
}

/// What a linear does with `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epilogue {
    /// `out = y`.
    Store,
    /// `out += y`: `out` is the residual stream.
    AddResidual,
    /// `out[i] = silu(y[2i]) · y[2i + 1]`, for a weight whose gate and up rows are interleaved.
    SwiGlu,
    /// `out[i] = gelu(y[2i]) · y[2i + 1]` with `gelu(x) = x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    GeluTanhGlu,
    /// `out[i] = gate · sigmoid(alpha · gate) · (up + 1)` with `gate = min(y[2i], limit)` and `up`
    /// `y[2i + 1]` within ±`limit`.
    ClampedSwiGlu { alpha: f32, limit: f32 },
    /// `out = cap · tanh(y / cap)`.
    SoftCap(f32),
}

// === impl Linear ===

impl<B: DeviceTypes> Linear<'_, B> {
    pub(crate) fn features(&self) -> impl Iterator<Item = OpFeature> + use<B> {
        let of_epilogue = match self.epilogue {
            Epilogue::Store | Epilogue::AddResidual | Epilogue::SwiGlu => None,
            Epilogue::GeluTanhGlu => Some(OpFeature::GeluTanhGlu),
            Epilogue::ClampedSwiGlu { .. } => Some(OpFeature::ClampedSwiGlu),
            Epilogue::SoftCap(_) => Some(OpFeature::LogitSoftCap),
        };
        let bias = self.bias.map(|_| OpFeature::LinearBias);
        of_epilogue.into_iter().chain(bias)
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            x,
            weight,
            bias,
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
        if let Some(bias) = bias {
            bias.expect_elements("linear bias", &[DType::F32], n);
            out.expect_apart("linear out", &[bias]);
        }
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
            Self::Store | Self::AddResidual | Self::SoftCap(_) => false,
            Self::SwiGlu | Self::GeluTanhGlu | Self::ClampedSwiGlu { .. } => true,
        }
    }

    /// Length of an output row of a weight of `n` rows.
    pub fn out_len(self, n: usize) -> usize {
        if self.joins_pairs() { n / 2 } else { n }
    }
}
