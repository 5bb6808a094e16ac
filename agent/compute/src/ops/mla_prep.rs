//! From the products of multi-head latent attention to rotated queries and cached latents.

use super::batch::BatchView;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::kv::{KvGroupView, KvScales};

/// Norms each row's latent, rotates its key and those of the queries by halves, writes latent and key to
/// `batch.out_slots`, and the rotated part of each query to the end of its head in `q_out`.
///
/// A latent of `norm.len()` elements and its key of the others make the one head of the KV group, whose only tensor
/// is both keys and values.
#[derive(Debug)]
pub struct MlaPrep<'a, B: DeviceTypes> {
    /// `[num_tokens][num_heads][nope_dim + rope_dim]`: of each head, what is not rotated comes first.
    pub q: &'a B::Buffer,
    pub num_heads: usize,
    pub nope_dim: usize,
    /// `[num_tokens][kv.head_dim]`: latents before their norm, each followed by its key. What is there afterwards is
    /// open.
    pub latent: &'a B::Buffer,
    /// `F32`, of the latent.
    pub norm: &'a B::Buffer,
    pub eps: f32,
    /// `F32 [num_tokens][rope_dim]`, made by [`RopeTable`](super::RopeTable).
    pub rope: &'a B::Buffer,
    pub batch: &'a BatchView<B>,
    /// Of one head and one tensor.
    pub kv: &'a KvGroupView<B>,
    /// Of the layer; `k` is that of latents. Ones, unless the pool has E4M3.
    pub kv_scales: KvScales,
    /// Layer within the group.
    pub layer: usize,
    /// `[num_tokens][num_heads][kv.head_dim]`, of which the last `rope_dim` of each head are written.
    pub q_out: &'a B::Buffer,
}

// === impl MlaPrep ===

impl<B: DeviceTypes> MlaPrep<'_, B> {
    /// Elements of a key, and of the rotated part of a query.
    pub(crate) fn rope_dim(&self) -> usize {
        self.kv.head_dim - self.norm.len()
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be, or the group is not one of
    /// latents.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            q,
            num_heads,
            nope_dim,
            latent,
            norm,
            eps: _,
            rope,
            batch,
            kv,
            kv_scales,
            layer: _,
            q_out,
        } = *self;
        kv_scales.check(kv.dtype);
        let (rows, head_dim, latent_dim) = (batch.num_tokens, kv.head_dim, norm.len());
        assert!(
            (kv.num_kv_heads, kv.tensors) == (1, 1),
            "mla_prep: a KV group of {} heads and {} tensors is not one of latents",
            kv.num_kv_heads,
            kv.tensors
        );
        assert!(
            latent_dim < head_dim && (head_dim - latent_dim).is_multiple_of(2),
            "mla_prep: a latent of {latent_dim} leaves no pairs in a head of {head_dim}"
        );
        let rope_dim = self.rope_dim();
        let slots = &batch.out_slots;
        let q_len = rows * num_heads * (nope_dim + rope_dim);
        q.expect_elements("mla_prep q", &[activations], q_len);
        latent.expect_elements("mla_prep latent", &[activations], rows * head_dim);
        norm.expect_elements("mla_prep norm", &[DType::F32], latent_dim);
        rope.expect_elements("mla_prep rope table", &[DType::F32], rows * rope_dim);
        slots.expect_elements("out_slots", &[DType::U32], rows);
        let out_len = rows * num_heads * head_dim;
        q_out.expect_elements("mla_prep q_out", &[activations], out_len);
        q_out.expect_apart("mla_prep q_out", &[q, latent, norm, rope, slots]);
        latent.expect_apart("mla_prep latent", &[q, norm, rope, slots]);
    }
}
