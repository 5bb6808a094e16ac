//! How ops see the states of recurrent layers: a region of equal items, one item per slot, and what a
//! step does with which slot. Which slot belongs to whom is not known here.

mod plan;

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::kv::NO_SLOT;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use plan::{SeqStates, StepWords};

/// States in one region: `[slot][tensor][head][layer][elements]`, dense, the state of docs/kv-layout.md.
#[derive(Clone, Debug)]
pub struct StateView<B: DeviceTypes> {
    pub region: B::Buffer,
    pub num_slots: usize,
    /// Layers that have such a state. Ops count them from 0.
    pub num_layers: usize,
    /// What an item holds, one after another.
    pub tensors: Arc<[StateTensorView]>,
}

/// A part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTensorView {
    pub heads: usize,
    /// Of one head of one layer.
    pub elements: usize,
}

/// The slots of a step's sequences, the same in every region of states. The slots that a step
/// writes, after its last row or as snapshots, are distinct, and none of them is read by another
/// sequence; several sequences may read one. The CPU's queue faults on anything else, CUDA's on a slot that does not exist.
#[derive(Clone, Debug)]
pub struct StateRows<B: DeviceTypes> {
    /// `U32 [num_seqs]`: where a sequence's state is before the step, or [`NO_SLOT`]: it begins with
    /// zeros. Another slot than the one written leaves it as it is, so a cached state needs no copy.
    pub read: B::Buffer,
    /// `U32 [num_seqs]`: where it is after the step, or [`NO_SLOT`]: it is not kept.
    pub write: B::Buffer,
    /// `U32 [num_tokens]`: where the state after this row is kept too, or [`NO_SLOT`].
    pub snapshot: B::Buffer,
}

// === impl StateTensorView ===

impl StateTensorView {
    fn layer_elements(&self) -> usize {
        self.heads * self.elements
    }
}

// === impl StateView ===

impl<B: DeviceTypes> StateView<B> {
    /// Elements from an item to the next.
    pub fn item_len(&self) -> usize {
        let elements = self.tensors.iter().map(StateTensorView::layer_elements);
        self.num_layers * elements.sum::<usize>()
    }

    /// The elements of each head of a layer, within an item: the heads of the first tensor, then
    /// those of the next.
    pub(crate) fn heads(&self, layer: usize) -> impl Iterator<Item = Range<usize>> {
        let mut first = 0;
        self.tensors.iter().flat_map(move |tensor| {
            let StateTensorView { heads, elements } = *tensor;
            let head_len = self.num_layers * elements;
            let start = first + layer * elements;
            first += heads * head_len;
            (0..heads).map(move |head| {
                let start = start + head * head_len;
                start..start + elements
            })
        })
    }

    /// # Panics
    /// When the region is too small or of another dtype, or there is no such layer.
    pub(crate) fn check(&self, what: &str, dtype: DType, layer: usize) {
        assert!(
            layer < self.num_layers,
            "{what}: no layer {layer} among {}",
            self.num_layers
        );
        let len = self.num_slots * self.item_len();
        self.region.expect_elements(what, &[dtype], len);
    }
}

// === impl StateRows ===

impl<B: DeviceTypes> StateRows<B> {
    /// # Panics
    /// When a buffer is too small or of another dtype.
    pub(crate) fn check(&self, num_seqs: usize, num_tokens: usize) {
        let Self {
            read,
            write,
            snapshot,
        } = self;
        read.expect_elements("state slots to read", &[DType::U32], num_seqs);
        write.expect_elements("state slots to write", &[DType::U32], num_seqs);
        snapshot.expect_elements("state snapshots", &[DType::U32], num_tokens);
    }
}

/// A word of [`StateRows`].
fn slot_of(word: u32) -> Option<usize> {
    (word != NO_SLOT).then_some(word as usize)
}
