//! What the KV pool must hold for a model: groups of layers that are stored alike.

use super::config::ModelConfig;
use super::mixer;

/// The KV groups of a model: layers that share a page table, dtype, heads and head dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPoolSpec {
    pub groups: Vec<KvGroupSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroupSpec {
    /// For messages and descriptors; `"full"` for full attention.
    pub name: &'static str,
    /// Layers of the model in this group, ascending. Layers of a group count from 0 in this order,
    /// in its memory and on the wire.
    pub layers: Vec<usize>,
    /// Per layer: 2, keys and values.
    pub tensors: usize,
    /// KV heads of the whole model.
    pub total_heads: usize,
    pub head_dim: usize,
}

/// Where a layer's keys and values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerPlace {
    /// In [`KvPoolSpec::groups`].
    pub(super) group: usize,
    /// Among the layers of the group.
    pub(super) ordinal: usize,
}

// === impl KvPoolSpec ===

impl KvPoolSpec {
    /// Layers that are stored alike make a group; groups are in the order of their first layers.
    pub fn of(config: &ModelConfig) -> Self {
        let mut groups: Vec<KvGroupSpec> = Vec::new();
        for (index, layer) in config.layers.iter().enumerate() {
            let own = mixer::kv_group(&layer.mixer);
            match groups.iter_mut().find(|group| group.is_like(&own)) {
                Some(group) => group.layers.push(index),
                None => groups.push(KvGroupSpec {
                    layers: vec![index],
                    ..own
                }),
            }
        }
        Self { groups }
    }

    /// # Panics
    /// If the layer is in no group.
    pub(super) fn place(&self, layer: usize) -> LayerPlace {
        let mut groups = self.groups.iter().enumerate();
        let place = groups.find_map(|(group, spec)| {
            let ordinal = spec.layers.binary_search(&layer).ok()?;
            Some(LayerPlace { group, ordinal })
        });
        place.expect("every layer of the model is in a group")
    }
}

// === impl KvGroupSpec ===

impl KvGroupSpec {
    fn is_like(&self, other: &Self) -> bool {
        let Self {
            name,
            layers: _,
            tensors,
            total_heads,
            head_dim,
        } = self;
        (*name, *tensors, *total_heads, *head_dim)
            == (other.name, other.tensors, other.total_heads, other.head_dim)
    }

    /// Elements that one token takes in this group.
    pub fn elements_per_token(&self) -> usize {
        self.layers.len() * self.total_heads * self.tensors * self.head_dim
    }
}

#[cfg(test)]
mod tests;
