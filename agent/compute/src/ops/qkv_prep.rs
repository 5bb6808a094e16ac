//! From the qkv product to rotated queries and cached keys and values.

use super::batch::BatchView;
use super::strided::Strided;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::kv::{KvGroupView, KvScales};

/// Turns the output of the qkv linear into queries and cached keys and values: adds the bias,
/// norms q and k per head (when given), rotates the first `rotary_dim` of each head by halves
/// (dimension i with i + rotary_dim/2), leaves q in `qkv` and writes k and v to `batch.out_slots`.
#[derive(Debug)]
pub struct QkvPrep<'a, B: DeviceTypes> {
    /// `[num_tokens][row_stride]`: q, k and v, `(num_q_heads + 2·num_kv_heads)·head_dim` elements,
    /// and what may follow them.
    pub qkv: &'a B::Buffer,
    /// Elements from a row of `qkv` to the next.
    pub row_stride: usize,
    /// `F32`, of q, k and v.
    pub bias: Option<&'a B::Buffer>,
    /// `F32 [head_dim]`.
    pub q_norm: Option<&'a B::Buffer>,
    /// `F32 [head_dim]`.
    pub k_norm: Option<&'a B::Buffer>,
    pub eps: f32,
    /// `F32 [num_tokens][rotary_dim]`, made by [`RopeTable`].
    pub rope: &'a B::Buffer,
    /// 0: nothing is rotated, and `rope` not read.
    pub rotary_dim: usize,
    pub num_q_heads: usize,
    pub batch: &'a BatchView<B>,
    pub kv: &'a KvGroupView<B>,
    pub kv_scales: KvScales,
    /// Layer within the group.
    pub layer: usize,
}

// === impl QkvPrep ===

impl<B: DeviceTypes> QkvPrep<'_, B> {
    /// Heads in a row: q, k and v.
    pub(crate) fn heads(&self) -> usize {
        self.num_q_heads + 2 * self.kv.num_kv_heads
    }

    fn qkv_rows(&self) -> Strided<'_, B> {
        Strided {
            values: self.qkv,
            row_stride: self.row_stride,
        }
    }

    /// Elements of `qkv` up to the last row's last.
    pub(crate) fn qkv_len(&self) -> usize {
        let row_len = self.heads() * self.kv.head_dim;
        self.qkv_rows().len(self.batch.num_tokens, row_len)
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            qkv,
            row_stride: _,
            bias,
            q_norm,
            k_norm,
            eps: _,
            rope,
            rotary_dim,
            num_q_heads: _,
            batch,
            kv,
            kv_scales,
            layer: _,
        } = *self;
        kv_scales.check(kv.dtype);
        let (rows, head_dim, floats) = (batch.num_tokens, kv.head_dim, [DType::F32]);
        let row_len = self.heads() * head_dim;
        assert!(kv.tensors == 2, "qkv_prep: a KV group without values");
        assert!(
            rotary_dim <= head_dim && rotary_dim.is_multiple_of(2),
            "rotary_dim {rotary_dim} is odd or exceeds head_dim {head_dim}"
        );
        let slots = &batch.out_slots;
        self.qkv_rows()
            .expect_rows("qkv", activations, rows, row_len);
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
