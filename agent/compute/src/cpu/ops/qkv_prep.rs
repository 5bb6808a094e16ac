//! From the qkv linear's output to rotated queries and cached keys and values.

use super::rms_norm::NormRow;
use super::rope_table::RotateHead;
use crate::cpu::handle::CpuBackend;
use crate::cpu::isa::Isa;
use crate::cpu::kv_layer::KvLayer;
use crate::cpu::memory::{Dst, Src};
use crate::cpu::queue::Exec;
use crate::kv::NO_SLOT;
use crate::ops::QkvPrep;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Prep {
    qkv: Dst<f32>,
    row_stride: usize,
    /// Elements of q, k and v in a row.
    heads_len: usize,
    bias: Option<Src<f32>>,
    q_norm: Option<Src<f32>>,
    k_norm: Option<Src<f32>>,
    eps: f32,
    rope: Src<f32>,
    rotary_dim: usize,
    num_q_heads: usize,
    out_slots: Src<u32>,
    rows: usize,
    layer: KvLayer,
    /// Counts values that the pool's dtype cannot hold.
    saturated: Arc<AtomicU64>,
}

pub(in crate::cpu) fn qkv_prep(
    op: QkvPrep<'_, CpuBackend>,
    saturated: &Arc<AtomicU64>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let (heads_len, qkv_len) = (op.heads() * op.kv.head_dim, op.qkv_len());
    let QkvPrep {
        qkv,
        row_stride,
        bias,
        q_norm,
        k_norm,
        eps,
        rope,
        rotary_dim,
        num_q_heads,
        batch,
        kv,
        kv_scales,
        layer,
    } = op;
    let rows = batch.num_tokens;
    let head_dim = kv.head_dim;
    let prep = Prep {
        qkv: qkv.dst("qkv", qkv_len),
        row_stride,
        heads_len,
        bias: bias.map(|bias| bias.src("qkv bias", heads_len)),
        q_norm: q_norm.map(|norm| norm.src("q_norm", head_dim)),
        k_norm: k_norm.map(|norm| norm.src("k_norm", head_dim)),
        eps,
        rope: rope.src("rope table", rows * rotary_dim),
        rotary_dim,
        num_q_heads,
        out_slots: batch.out_slots.src("out_slots", rows),
        rows,
        layer: KvLayer::new(kv, kv_scales, layer),
        saturated: Arc::clone(saturated),
    };
    move |exec| {
        let isa = exec.isa;
        exec.run_rows(rows, 2 * heads_len, |range| {
            range.for_each(|r| prep.row(isa, r))
        });
    }
}

// === impl Prep ===

impl Prep {
    fn row(&self, isa: Isa, r: usize) {
        debug_assert!(r < self.rows, "a row of the batch");
        let KvLayer {
            head_dim,
            num_kv_heads,
            ..
        } = self.layer;
        // SAFETY: on the queue; each row belongs to one task, and what is read is other memory.
        let (row, rope, out_slots) = unsafe {
            let row = self
                .qkv
                .slice_mut(r * self.row_stride..r * self.row_stride + self.heads_len);
            (row, self.rope.slice(), self.out_slots.slice())
        };
        if let Some(bias) = &self.bias {
            // SAFETY: on the queue; weights are never written.
            let bias = unsafe { bias.slice() };
            row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
        }
        let (q, kv) = row.split_at_mut(self.num_q_heads * head_dim);
        let (k, v) = kv.split_at_mut(num_kv_heads * head_dim);
        let rope = &rope[r * self.rotary_dim..(r + 1) * self.rotary_dim];
        q.chunks_exact_mut(head_dim)
            .for_each(|q| self.head(isa, q, self.q_norm.as_ref(), rope));
        k.chunks_exact_mut(head_dim)
            .for_each(|k| self.head(isa, k, self.k_norm.as_ref(), rope));
        if out_slots[r] == NO_SLOT {
            return;
        }
        let slot = out_slots[r] as usize;
        let mut saturated = 0;
        for kv_head in 0..num_kv_heads {
            let span = kv_head * head_dim..(kv_head + 1) * head_dim;
            // SAFETY: on the queue; the batch gives each row a slot of its own.
            unsafe {
                saturated += self.layer.write(isa, slot, kv_head, 0, &k[span.clone()]);
                saturated += self.layer.write(isa, slot, kv_head, 1, &v[span]);
            }
        }
        if saturated > 0 {
            self.saturated.fetch_add(saturated, Ordering::Relaxed);
        }
    }

    fn head(&self, isa: Isa, head: &mut [f32], norm: Option<&Src<f32>>, rope: &[f32]) {
        if let Some(norm) = norm {
            // SAFETY: on the queue; weights are never written.
            let weight = unsafe { norm.slice() };
            // SAFETY: the kernel has no needs of its own.
            unsafe {
                isa.dispatch(NormRow {
                    row: head,
                    weight,
                    eps: self.eps,
                })
            };
        }
        if rope.is_empty() {
            return;
        }
        let (cos, sin) = rope.split_at(self.rotary_dim / 2);
        // SAFETY: the kernel has no needs of its own.
        unsafe { isa.dispatch(RotateHead { head, cos, sin }) };
    }
}

#[cfg(test)]
mod tests;
