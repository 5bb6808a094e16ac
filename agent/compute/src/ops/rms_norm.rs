//! RMS norm, with the residual addition before it.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;

/// `x += add` (when given), then `out = y` or `out += y` of `y = x / sqrt(mean(x²) + eps) · weight`,
/// per row.
#[derive(Debug)]
pub struct RmsNorm<'a, B: DeviceTypes> {
    /// `[rows][hidden]`, the residual stream.
    pub x: &'a B::Buffer,
    /// `[rows][hidden]`.
    pub add: Option<&'a B::Buffer>,
    /// `F32 [hidden]`.
    pub weight: &'a B::Buffer,
    pub eps: f32,
    /// `[rows][hidden]`; may be `x` itself where it is stored.
    pub out: &'a B::Buffer,
    /// A norm after attention or the feed-forward is added to the residual stream.
    pub into: WriteMode,
    pub rows: usize,
}

/// What becomes of what was in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    Store,
    Add,
}

// === impl RmsNorm ===

impl<B: DeviceTypes> RmsNorm<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            x,
            add,
            weight,
            eps: _,
            out,
            into,
            rows,
        } = *self;
        let len = rows * weight.len();
        x.expect_elements("rms_norm x", &[activations], len);
        weight.expect_elements("rms_norm weight", &[DType::F32], 0);
        out.expect_elements("rms_norm out", &[activations], len);
        out.expect_apart("rms_norm out", &[weight]);
        if into == WriteMode::Add || !x.begins_with(out) {
            out.expect_apart("rms_norm out", &[x]);
        }
        if let Some(add) = add {
            add.expect_elements("rms_norm add", &[activations], len);
            add.expect_apart("rms_norm add", &[x, out]);
        }
    }
}
