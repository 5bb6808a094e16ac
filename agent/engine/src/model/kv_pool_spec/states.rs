//! States of recurrent layers, as the pool holds and a transfer describes them.

use pd_compute::{Backend, DType, StateTensorView, StateView};

/// What a sequence keeps for the recurrent layers of a model, in one region: an item per slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSpec {
    /// For messages and descriptors.
    pub name: &'static str,
    pub dtype: StateDtype,
    /// Layers of the model that have it, ascending. They count from 0 in this order, in its memory and on
    /// the wire.
    pub layers: Vec<usize>,
    /// What an item holds, one after another: `[dim][layer][elements]` each.
    pub tensors: Vec<StateTensorSpec>,
}

/// A part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTensorSpec {
    /// For descriptors.
    pub name: &'static str,
    /// Heads of the whole model.
    pub dim: usize,
    /// Of one head of one layer.
    pub elements: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateDtype {
    Activations,
    F32,
}

// === impl StateDtype ===

impl StateDtype {
    pub const fn of(self, activations: DType) -> DType {
        match self {
            Self::Activations => activations,
            Self::F32 => DType::F32,
        }
    }
}

// === impl StateSpec ===

impl StateSpec {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self {
            name,
            dtype,
            layers: _,
            tensors,
        } = self;
        (*name, *dtype, tensors) == (other.name, other.dtype, &other.tensors)
    }

    /// Elements that one sequence takes.
    pub fn item_elements(&self) -> usize {
        let tensors = self
            .tensors
            .iter()
            .map(|tensor| tensor.dim * tensor.elements);
        self.layers.len() * tensors.sum::<usize>()
    }

    /// Bytes that one sequence takes.
    pub fn item_bytes(&self, activations: DType) -> usize {
        self.item_elements() * self.dtype.of(activations).size_bytes()
    }

    /// `num_slots` items in a region, as ops see them.
    pub fn view<B: Backend>(&self, region: B::Buffer, num_slots: usize) -> StateView<B> {
        let tensors = self.tensors.iter().map(|tensor| StateTensorView {
            heads: tensor.dim,
            elements: tensor.elements,
        });
        StateView {
            region,
            num_slots,
            num_layers: self.layers.len(),
            tensors: tensors.collect(),
        }
    }
}
