//! From the qkv product to rotated queries and cached keys and values.

use super::batch::BatchView;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::kv::KvGroupView;

/// Turns the output of the qkv linear into queries and cached keys and values: adds the bias,
/// norms q and k per head (when given), rotates the first `rotary_dim` of each head by halves
/// (dimension i with i + rotary_dim/2), leaves q in `qkv` and writes k and v to `batch.out_slots`.
#[derive(Debug)]
pub struct QkvPrep<'a, B: DeviceTypes> {
    /// `[num_tokens][(num_q_heads + 2·num_kv_heads)·head_dim]`: q, k, v.
    pub qkv: &'a B::Buffer,
    /// `F32`, one row of `qkv`.
    pub bias: Option<&'a B::Buffer>,
    /// `F32 [head_dim]`.
    pub q_norm: Option<&'a B::Buffer>,
    /// `F32 [head_dim]`.
    pub k_norm: Option<&'a B::Buffer>,
    pub eps: f32,
    /// `F32 [num_tokens][rotary_dim]`, made by [`RopeTable`].
    pub rope: &'a B::Buffer,
    pub rotary_dim: usize,
    pub num_q_heads: usize,
    pub batch: &'a BatchView<B>,
    pub kv: &'a KvGroupView<B>,
    /// Layer within the group.
    pub layer: usize,
}

// === impl QkvPrep ===

impl<B: DeviceTypes> QkvPrep<'_, B> {
    /// Heads in a row: q, k and v.
    pub(crate) fn heads(&self) -> usize {
        self.num_q_heads + 2 * self.kv.num_kv_heads
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            qkv,
            bias,
            q_norm,
            k_norm,
            eps: _,
            rope,
            rotary_dim,
            num_q_heads: _,
            batch,
            kv,
            layer: _,
        } = *self;
        let (rows, head_dim, floats) = (batch.num_tokens, kv.head_dim, [DType::F32]);
        let row_len = self.heads() * head_dim;
        assert!(
            rotary_dim <= head_dim && rotary_dim.is_multiple_of(2),
            "rotary_dim {rotary_dim} is odd or exceeds head_dim {head_dim}"
        );
        let slots = &batch.out_slots;
        qkv.expect_elements("qkv", &[activations], rows * row_len);
        rope.expect_elements("rope table", &floats, rows * rotary_dim);
        slots.expect_elements("out_slots", &[DType::U32], rows);
        qkv.expect_apart("qkv", &[rope, slots]);
        for (what, buffer, len) in [
            ("qkv bias", bias, row_len),
            ("q_norm", q_norm, head_dim),
            ("k_norm", k_norm, head_dim),
        ] {
            if let Some(buffer) = buffer {
                buffer.expect_elements(what, &floats, len);
                qkv.expect_apart("qkv", &[buffer]);
            }
        }
    }
}
