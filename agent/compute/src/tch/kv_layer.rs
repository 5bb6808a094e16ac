//! A layer of the paged pool as tensors.

use super::handle::TchBackend;
use crate::kv::{KvGroupView, KvLayerSpan};
use tch::Tensor;

/// The tensors of a layer of the group, K and V or one that is both, each `[page][kv_head][slot][head_dim]`, sharing
/// the pool's memory.
pub(super) fn layer_of(kv: &KvGroupView<TchBackend>, layer: usize) -> Vec<Tensor> {
    let KvLayerSpan { cut, offset, .. } = kv.layer_span(layer);
    let shape = [kv.num_pages, kv.num_kv_heads, kv.page_size, kv.head_dim];
    let strides = [cut.page_stride, cut.head_stride, cut.slot_stride, 1];
    let tensor = |kind| {
        let first = offset + kind * cut.kv_stride;
        cut.region.strided("KV region", first, shape, strides)
    };
    (0..kv.tensors).map(tensor).collect()
}
