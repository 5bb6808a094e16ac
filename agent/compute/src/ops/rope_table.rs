//! Cosines and sines of a step's positions.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;

/// `out[r] = [cos(p·inv_freq) · factor | sin(p·inv_freq) · factor]` for `p = positions[r]`: made
/// once per step, used by every layer.
#[derive(Debug)]
pub struct RopeTable<'a, B: DeviceTypes> {
    /// `U32 [rows]`.
    pub positions: &'a B::Buffer,
    /// `F32 [rotary_dim / 2]`, with the model's RoPE scaling already in it.
    pub inv_freq: &'a B::Buffer,
    /// Attention factor of the RoPE scaling (YaRN); 1 otherwise.
    pub factor: f32,
    /// `F32 [rows][rotary_dim]`.
    pub out: &'a B::Buffer,
    pub rows: usize,
}

// === impl RopeTable ===

impl<B: DeviceTypes> RopeTable<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self) {
        let Self {
            positions,
            inv_freq,
            factor: _,
            out,
            rows,
        } = *self;
        positions.expect_elements("rope_table positions", &[DType::U32], rows);
        inv_freq.expect_elements("rope_table inv_freq", &[DType::F32], 0);
        let len = rows * 2 * inv_freq.len();
        out.expect_elements("rope_table out", &[DType::F32], len);
        out.expect_apart("rope_table out", &[positions, inv_freq]);
    }
}
