//! Hashes of pages and states, for observation.

use crate::kvcache::group::KvGroups;
use crate::kvcache::{PageIdx, StateSlot};
use crate::observe::{PayloadHash, PayloadHasher};
use pd_compute::{Backend, ComputeError, DeviceBuffer, KvCutView, KvGroupView, StateView, Ticket};
use std::ops::Range;

/// Of these slots of a page, over all groups, in queue order.
///
/// # Errors
/// When the device faulted.
pub(super) fn hash_slots<B: Backend>(
    backend: &B,
    kv: &KvGroups<B>,
    page: PageIdx,
    slots: &Range<usize>,
) -> Result<PayloadHash, ComputeError> {
    let mut hasher = PayloadHasher::default();
    for view in kv.views() {
        for cut in view.cuts.iter() {
            let start = page.0 as usize * cut.page_stride;
            let bytes = backend
                .read(&cut.region.slice(start..start + cut.page_stride))
                .wait()?;
            push_cut(&mut hasher, view, cut, bytes.as_bytes(), slots);
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
