//! Hashes of pages and states, for observation.

use crate::kvcache::StateSlot;
use crate::kvcache::group::KvGroups;
use crate::observe::{PayloadHash, PayloadHasher};
use crate::ranks::PageSpan;
use pd_compute::{Backend, ComputeError, DeviceBuffer, KvCutView, KvGroupView, StateView, Ticket};
use std::ops::Range;

/// Of a page's slots, over the groups that it is of, in queue order.
///
/// # Errors
/// When the device faulted.
pub(super) fn hash_slots<B: Backend>(
    backend: &B,
    kv: &KvGroups<B>,
    span: &PageSpan,
) -> Result<PayloadHash, ComputeError> {
    let mut hasher = PayloadHasher::default();
    for (view, is_window) in kv.spaces() {
        let page = if is_window {
            span.window.map(|page| page.0)
        } else {
            Some(span.page.0)
        };
        let Some(page) = page else { continue };
        for cut in view.cuts.iter() {
            let start = page as usize * cut.page_stride;
            let bytes = backend
                .read(&cut.region.slice(start..start + cut.page_stride))
                .wait()?;
            push_cut(&mut hasher, view, cut, bytes.as_bytes(), &span.slots);
        }
    }
    Ok(hasher.finish())
}

/// Of a slot, in queue order.
///
/// # Errors
/// When the device faulted.
pub(super) fn hash_state<B: Backend>(
    backend: &B,
    view: &StateView<B>,
    slot: StateSlot,
) -> Result<PayloadHash, ComputeError> {
    let start = slot.0 as usize * view.item_len();
    let item = view.region.slice(start..start + view.item_len());
    let bytes = backend.read(&item).wait()?;
    let size = view.region.dtype().size_bytes();
    let mut hasher = PayloadHasher::default();
    let mut base = 0;
    for tensor in view.tensors.iter() {
        for layer in 0..view.num_layers {
            for head in 0..tensor.heads {
                let place = base + (head * view.num_layers + layer) * tensor.elements;
                hasher.push(&bytes.as_bytes()[place * size..(place + tensor.elements) * size]);
            }
        }
        base += tensor.heads * view.num_layers * tensor.elements;
    }
    Ok(hasher.finish())
}

fn push_cut<B: Backend>(
    hasher: &mut PayloadHasher,
    view: &KvGroupView<B>,
    cut: &KvCutView<B>,
    page: &[u8],
    slots: &Range<usize>,
) {
    let size = view.dtype.size_bytes();
    for layer in 0..cut.num_layers {
        for head in 0..view.num_kv_heads {
            for tensor in 0..view.tensors {
                let base =
                    head * cut.head_stride + layer * cut.layer_stride + tensor * cut.kv_stride;
                for slot in slots.clone() {
                    let start = (base + slot * cut.slot_stride) * size;
                    hasher.push(&page[start..start + view.head_dim * size]);
                }
            }
        }
    }
}
