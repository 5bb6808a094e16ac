//! State that hybrid models keep beside the pages of their KV groups. Source: docs/sglang-protocol.md#hybrid-state.

use super::{LayoutError, in_range};
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Most tensors of one state.
pub const TENSORS_MAX: usize = 64;

/// A state of a rank: one region of equal items. A request's items are sent once, with its last chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLayout {
    /// Equal names are paired.
    #[serde(deserialize_with = "bounded::name")]
    pub name: String,
    #[serde(rename = "type")]
    pub state_type: StateType,
    /// Items of the region.
    pub slots: u32,
    /// What an item holds, one after another.
    pub tensors: Vec<StateTensor>,
}

/// Which items of a state are a request's; SGLang's `state_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateType {
    /// One: what recurrent layers know after the last token.
    Mamba,
    /// The pages of the last window of sliding-window layers.
    Swa,
    /// One for each page of the request: the index keys of sparse attention.
    Nsa,
}

/// A part of an item: `[dim][layer][bytes]`. Tensor parallelism slices `dim`, SGLang's
/// `state_dim_per_tensor`; pipeline stages slice the layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateTensor {
    /// Tensors of equal names are parts of one: their layers are apart.
    #[serde(deserialize_with = "bounded::name")]
    pub name: String,
    /// The whole model's; this rank holds `dim_start..dim_start + dim`.
    pub total_dim: u32,
    pub dim_start: u32,
    pub dim: u32,
    /// Counted among the layers that have such a state.
    pub first_layer: u32,
    pub layers: u32,
    /// Bytes of one layer at one place of `dim`.
    pub layer_bytes: u64,
}

// === impl StateTensor ===

impl StateTensor {
    /// Bytes of all its layers at one place of `dim`.
    pub fn dim_bytes(&self) -> u64 {
        u64::from(self.layers) * self.layer_bytes
    }

    /// Bytes of an item that are this tensor's.
    pub fn bytes(&self) -> u64 {
        u64::from(self.dim) * self.dim_bytes()
    }

    fn validate(&self) -> Result<(), LayoutError> {
        in_range("state dim", u64::from(self.dim), 1, 1 << 24)?;
        in_range("state layers", u64::from(self.layers), 1, 65_536)?;
        let first = u64::from(self.first_layer);
        in_range("first_layer of a state", first, 0, 65_536)?;
        in_range("state layer_bytes", self.layer_bytes, 1, 1 << 30)?;
        let start = u64::from(self.dim_start);
        let end = start + u64::from(self.dim);
        if end > u64::from(self.total_dim) {
            return Err(LayoutError::Heads {
                group: format!("state {}", self.name),
                start,
                end,
                total: self.total_dim,
            });
        }
        let bytes = u128::from(self.dim) * u128::from(self.layers) * u128::from(self.layer_bytes);
        i64::try_from(bytes).map_err(|_| LayoutError::TooLarge)?;
        Ok(())
    }
}

// === impl StateLayout ===

impl StateLayout {
    /// Stride from item to item.
    pub fn item_bytes(&self) -> u64 {
        self.tensors.iter().map(StateTensor::bytes).sum()
    }

    /// Each tensor, and where it begins in an item.
    pub fn offsets(&self) -> impl Iterator<Item = (&StateTensor, u64)> {
        let mut next = 0;
        self.tensors.iter().map(move |tensor| {
            let offset = next;
            next += tensor.bytes();
            (tensor, offset)
        })
    }

    /// Whether a request of `pages` pages can have so many items.
    pub fn fits(&self, items: usize, pages: usize) -> bool {
        match self.state_type {
            StateType::Mamba => items == 1,
            StateType::Swa => true,
            StateType::Nsa => items == pages,
        }
    }

    pub(super) fn validate(&self) -> Result<(), LayoutError> {
        let tensors = self.tensors.len() as u64;
        in_range("tensors of a state", tensors, 1, TENSORS_MAX as u64)?;
        in_range("state slots", u64::from(self.slots), 1, u64::from(u32::MAX))?;
        let mut item_bytes = 0i64;
        for tensor in &self.tensors {
            tensor.validate()?;
            let bytes = i64::try_from(tensor.bytes()).map_err(|_| LayoutError::TooLarge)?;
            item_bytes = item_bytes.checked_add(bytes).ok_or(LayoutError::TooLarge)?;
        }
        let region = item_bytes.checked_mul(i64::from(self.slots));
        region.ok_or(LayoutError::TooLarge)?;
        super::check_apart(self.tensors.iter().map(|tensor| {
            let end = tensor.first_layer + tensor.layers;
            (tensor.name.as_str(), tensor.first_layer..end)
        }))
    }
}
