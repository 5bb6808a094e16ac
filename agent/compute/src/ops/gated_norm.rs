//! RMS norm of each head, with a gate.

use super::strided::Strided;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;

/// `x ← x / sqrt(mean(x²) + eps) · weight · silu(z)`, per head of each row.
#[derive(Debug)]
pub struct GatedNorm<'a, B: DeviceTypes> {
    /// `[rows][num_heads][head_dim]`.
    pub x: &'a B::Buffer,
    /// `[rows][num_heads·head_dim]`.
    pub z: Strided<'a, B>,
    /// `F32 [head_dim]`.
    pub weight: &'a B::Buffer,
    pub eps: f32,
    pub num_heads: usize,
    pub rows: usize,
}

// === impl GatedNorm ===

impl<B: DeviceTypes> GatedNorm<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            x,
            z,
            weight,
            eps: _,
            num_heads,
            rows,
        } = *self;
        let row_len = num_heads * weight.len();
        x.expect_elements("gated_norm x", &[activations], rows * row_len);
        z.expect_rows("gated_norm z", activations, rows, row_len);
        weight.expect_elements("gated_norm weight", &[DType::F32], 0);
        x.expect_apart("gated_norm x", &[z.values, weight]);
    }
}
