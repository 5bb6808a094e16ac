//! From the products of multi-head latent attention to rotated queries and cached latents.

use super::qkv_prep::{rotated, write_slots};
use super::rms_norm::normed;
use crate::buffer::DeviceBuffer;
use crate::ops::MlaPrep;
use crate::tch::handle::TchBackend;
use crate::tch::kv_layer::layer_of;
use crate::tch::memory::int;
use tch::Tensor;

pub(in crate::tch) fn mla_prep(op: MlaPrep<'_, TchBackend>) -> Result<(), String> {
    let rope_dim = op.rope_dim();
    let MlaPrep {
        q,
        num_heads,
        nope_dim,
        latent,
        norm,
        eps,
        rope,
        batch,
        kv,
        kv_scales: _,
        layer,
        q_out,
    } = op;
    let (rows, latent_dim) = (batch.num_tokens, norm.len());
    let rope = rope.view("rope", [rows, 1, rope_dim]);
    let row = latent.floats("latent", [rows, 1, kv.head_dim]);
    let latent = row.narrow(2, 0, int(latent_dim));
    let latent = normed(&latent, &norm.view("latent norm", [latent_dim]), eps);
    let key = rotated(&row.narrow(2, int(latent_dim), int(rope_dim)), &rope);
    let q = q.floats("q", [rows, num_heads, nope_dim + rope_dim]);
    let q = rotated(&q.narrow(2, int(nope_dim), int(rope_dim)), &rope);
    let q_out = q_out.view("mla_prep q_out", [rows, num_heads, kv.head_dim]);
    q_out.narrow(2, int(latent_dim), int(rope_dim)).copy_(&q);
    let slots = batch.out_slots.words("out_slots", rows)?;
    let cached = Tensor::cat(&[latent, key], 2);
    write_slots(&layer_of(kv, layer)[0], &slots, &cached)
}
