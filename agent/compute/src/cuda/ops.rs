//! From checked ops to launches: kernels and grids are chosen.

pub(super) mod attn_latent;
pub(super) mod attn_paged;
pub(super) mod causal_conv;
pub(super) mod copy_pages;
pub(super) mod copy_states;
pub(super) mod embed;
pub(super) mod gated_norm;
pub(super) mod gather_rows;
pub(super) mod gdn_scan;
pub(super) mod head_linear;
pub(super) mod linear;
pub(super) mod mla_prep;
pub(super) mod moe_experts;
pub(super) mod moe_finish;
pub(super) mod moe_route;
pub(super) mod qkv_prep;
pub(super) mod rms_norm;
pub(super) mod rope_table;
pub(super) mod sample;

use super::handle::CudaBackend;
use super::kernels::{self, Kernel, to_u32};
use super::shared::Shared;
use crate::dtype::DType;
use crate::kv::{KvGroupView, KvLayerSpan, KvScales};
use crate::ops::BatchView;
use crate::states::{StateRows, StateView};

/// One layer of the pool as kernels address it.
///
/// # Panics
/// When the pool's region is too small for its pages.
fn kv_layer(
    shared: &Shared,
    kv: &KvGroupView<CudaBackend>,
    layer: usize,
    scales: KvScales,
) -> kernels::KvLayer {
    let dtype = kv.dtype;
    let KvLayerSpan { cut, offset, len } = kv.layer_span(layer);
    let base = cut.region.addr_of("KV region", &[dtype], len);
    let element = dtype.size_bytes();
    kernels::KvLayer {
        base: base + (offset * element) as u64,
        page_stride: cut.page_stride as u64,
        head_stride: cut.head_stride as u64,
        kv_stride: cut.kv_stride as u64,
        slot_stride: cut.slot_stride as u64,
        page_size: to_u32(kv.page_size),
        num_pages: to_u32(kv.num_pages),
        num_kv_heads: to_u32(kv.num_kv_heads),
        head_dim: to_u32(kv.head_dim),
        saturated: shared.saturations.addr(),
        k_scale: scales.k,
        v_scale: scales.v,
    }
}

/// A kernel that reads or writes a pool, by the dtypes of both.
struct OfPool {
    bf16: Kernel,
    f32: Kernel,
    /// With a pool of E4M3.
    bf16_f8: Kernel,
    f32_f8: Kernel,
}

// === impl OfPool ===

impl OfPool {
    /// # Panics
    /// When none takes the pool's dtype beside the activations'.
    fn of(&self, activations: DType, pool: DType) -> Kernel {
        match (activations, pool) {
            (DType::F32, DType::F8E4M3) => self.f32_f8,
            (_, DType::F8E4M3) => self.bf16_f8,
            _ if activations != pool => {
                panic!("a KV pool of {pool:?} beside activations of {activations:?}")
            }
            (DType::F32, _) => self.f32,
            _ => self.bf16,
        }
    }
}

fn batch_args(batch: &BatchView<CudaBackend>) -> kernels::Batch {
    let words = [DType::U32];
    let seqs = batch.num_seqs;
    let table = seqs * batch.page_table_stride;
    kernels::Batch {
        q_indptr: batch.q_indptr.addr_of("q_indptr", &words, seqs + 1),
        kv_lens: batch.kv_lens.addr_of("kv_lens", &words, seqs),
        page_table: batch.page_table.addr_of("page_table", &words, table),
        page_table_stride: to_u32(batch.page_table_stride),
        num_tokens: to_u32(batch.num_tokens),
        num_seqs: to_u32(seqs),
        pad: 0,
    }
}

/// States of `dtype`, and what a step does with which slot.
///
/// # Panics
/// When a buffer is too small or of another dtype.
fn state_args(
    states: &StateView<CudaBackend>,
    rows: &StateRows<CudaBackend>,
    batch: &BatchView<CudaBackend>,
    dtype: DType,
) -> kernels::States {
    let (words, seqs, item_len) = ([DType::U32], batch.num_seqs, states.item_len());
    let (tokens, region_len) = (batch.num_tokens, states.num_slots * item_len);
    let StateRows {
        read,
        write,
        snapshot,
    } = rows;
    kernels::States {
        region: states.region.addr_of("state region", &[dtype], region_len),
        item_len: item_len as u64,
        q_indptr: batch.q_indptr.addr_of("q_indptr", &words, seqs + 1),
        read: read.addr_of("state slots to read", &words, seqs),
        write: write.addr_of("state slots to write", &words, seqs),
        snapshot: snapshot.addr_of("state snapshots", &words, tokens),
        num_slots: to_u32(states.num_slots),
        pad: 0,
    }
}
