//! The paged pool as tensors, and whole pages to the host and back.

use super::backend::TchBackend;
use super::memory::index_tensor;
use crate::buffer::DeviceBuffer;
use crate::kv::KvGroupView;
use crate::ops::{CopyDirection, CopyPages};
use tch::Tensor;

/// K and V of a layer of the group, each `[page][kv_head][slot][head_dim]`, sharing the pool's memory.
pub(super) fn layer_of(kv: &KvGroupView<TchBackend>, layer: usize) -> [Tensor; 2] {
    let (cut, place) = kv.cut_of(layer);
    let shape = [kv.num_pages, kv.num_kv_heads, kv.page_size, kv.head_dim];
    let strides = [cut.page_stride, cut.head_stride, cut.slot_stride, 1];
    [0, cut.kv_stride].map(|kind| {
        let first = place * cut.layer_stride + kind;
        cut.region.strided("KV region", first, shape, strides)
    })
}

pub(super) fn copy_pages(op: CopyPages<'_, TchBackend>) -> Result<(), String> {
    let CopyPages {
        kv,
        page_indices,
        num_pages,
        host,
        direction,
    } = op;
    assert!(
        host.dtype() == kv.dtype,
        "copy_pages: {host:?} beside a pool of {:?}",
        kv.dtype
    );
    let indices = page_indices.words("page_indices", num_pages)?;
    let row_len = kv.cuts.iter().map(|cut| cut.page_stride).sum();
    let mut column = 0;
    for cut in kv.cuts.iter() {
        let device = cut.region.device();
        let pages = index_tensor(&indices, "page", "the pool", kv.num_pages, device)?;
        let mut region = cut.region.view("region", [kv.num_pages, cut.page_stride]);
        let mut host = host.strided("host", column, [num_pages, cut.page_stride], [row_len, 1]);
        match direction {
            CopyDirection::PoolToHost => host.copy_(&region.index_select(0, &pages)),
            CopyDirection::HostToPool => {
                let _ = region.index_copy_(0, &pages, &host.to_device(device));
            }
        }
        column += cut.page_stride;
    }
    Ok(())
}
