//! A layer of the paged pool as tensors.

use super::handle::TchBackend;
use crate::kv::{KvGroupView, KvLayerSpan};
use tch::Tensor;

/// K and V of a layer of the group, each `[page][kv_head][slot][head_dim]`, sharing the pool's memory.
pub(super) fn layer_of(kv: &KvGroupView<TchBackend>, layer: usize) -> [Tensor; 2] {
    let KvLayerSpan { cut, offset, .. } = kv.layer_span(layer);
    let shape = [kv.num_pages, kv.num_kv_heads, kv.page_size, kv.head_dim];
    let strides = [cut.page_stride, cut.head_stride, cut.slot_stride, 1];
    [0, cut.kv_stride].map(|kind| {
        cut.region
            .strided("KV region", offset + kind, shape, strides)
    })
}
