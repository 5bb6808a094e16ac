//! From checked ops to launches: kernels and grids are chosen.

pub(super) mod attn_paged;
pub(super) mod copy_pages;
pub(super) mod embed;
pub(super) mod gather_rows;
pub(super) mod linear;
pub(super) mod qkv_prep;
pub(super) mod rms_norm;
pub(super) mod rope_table;
pub(super) mod sample;

use super::handle::CudaBackend;
use super::kernels::{self, to_u32};
use crate::dtype::DType;
use crate::kv::{KvGroupView, KvLayerSpan};
use crate::ops::BatchView;

/// One layer of the pool as kernels address it.
///
/// # Panics
/// When the pool's dtype is not `dtype`, or its region is too small for its pages.
fn kv_layer(kv: &KvGroupView<CudaBackend>, layer: usize, dtype: DType) -> kernels::KvLayer {
    assert!(
        kv.dtype == dtype,
        "a KV pool of {:?} beside activations of {dtype:?}",
        kv.dtype
    );
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
