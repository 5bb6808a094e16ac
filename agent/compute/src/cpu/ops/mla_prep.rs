//! From the products of multi-head latent attention to rotated queries and cached latents.

use super::rms_norm::NormRow;
use super::rope_table::RotateHead;
use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::isa::Isa;
use crate::cpu::kv_layer::KvLayer;
use crate::cpu::memory::{Dst, Src};
use crate::cpu::queue::Exec;
use crate::kv::NO_SLOT;
use crate::ops::MlaPrep;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Prep {
    q: Src<f32>,
    num_heads: usize,
    nope_dim: usize,
    rope_dim: usize,
    latent: Dst<f32>,
    norm: Src<f32>,
    eps: f32,
    rope: Src<f32>,
    out_slots: Src<u32>,
    layer: KvLayer,
    /// Counts values that the pool's dtype cannot hold.
    saturated: Arc<AtomicU64>,
    q_out: Dst<f32>,
}

pub(in crate::cpu) fn mla_prep(
    op: MlaPrep<'_, CpuBackend>,
    saturated: &Arc<AtomicU64>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
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
        kv_scales,
        layer,
        q_out,
    } = op;
    let rows = batch.num_tokens;
    let prep = Prep {
        q: q.src("mla_prep q", rows * num_heads * (nope_dim + rope_dim)),
        num_heads,
        nope_dim,
        rope_dim,
        latent: latent.dst("mla_prep latent", rows * kv.head_dim),
        norm: norm.src("mla_prep norm", norm.len()),
        eps,
        rope: rope.src("mla_prep rope table", rows * rope_dim),
        out_slots: batch.out_slots.src("out_slots", rows),
        layer: KvLayer::new(kv, kv_scales, layer),
        saturated: Arc::clone(saturated),
        q_out: q_out.dst("mla_prep q_out", rows * num_heads * kv.head_dim),
    };
    let row_work = 2 * (kv.head_dim + num_heads * rope_dim);
    move |exec| {
        let isa = exec.isa;
        exec.run_rows(rows, row_work, |range| range.for_each(|r| prep.row(isa, r)));
    }
}

// === impl Prep ===

impl Prep {
    fn row(&self, isa: Isa, r: usize) {
        let (head_dim, rope_dim) = (self.layer.head_dim, self.rope_dim);
        // SAFETY: on the queue; each row belongs to one task, and what is read is other memory.
        let (row, q, norm, rope, out_slots) = unsafe {
            let row = self.latent.slice_mut(r * head_dim..(r + 1) * head_dim);
            let (norm, rope) = (self.norm.slice(), self.rope.slice());
            (row, self.q.slice(), norm, rope, self.out_slots.slice())
        };
        let (cos, sin) = rope[r * rope_dim..(r + 1) * rope_dim].split_at(rope_dim / 2);
        let rotate = |head: &mut [f32]| {
            // SAFETY: the kernel has no needs of its own.
            unsafe { isa.dispatch(RotateHead { head, cos, sin }) };
        };
        let (latent, key) = row.split_at_mut(head_dim - rope_dim);
        // SAFETY: the kernel has no needs of its own.
        unsafe {
            isa.dispatch(NormRow {
                row: latent,
                weight: norm,
                eps: self.eps,
            });
        }
        rotate(key);
        let q_dim = self.nope_dim + rope_dim;
        for head in r * self.num_heads..(r + 1) * self.num_heads {
            let end = (head + 1) * head_dim;
            // SAFETY: on the queue; as above.
            let out = unsafe { self.q_out.slice_mut(end - rope_dim..end) };
            out.copy_from_slice(&q[head * q_dim + self.nope_dim..][..rope_dim]);
            rotate(out);
        }
        if out_slots[r] != NO_SLOT {
            // SAFETY: on the queue; the batch gives each row a slot of its own.
            let saturated = unsafe { self.layer.write(isa, out_slots[r] as usize, 0, 0, row) };
            if saturated > 0 {
                self.saturated.fetch_add(saturated, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
