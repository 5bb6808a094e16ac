//! What the KV pool must hold for a model: groups of layers whose keys and values are stored alike, and
//! the states of its recurrent layers.

mod of_layers;
mod states;

pub use states::{StateDtype, StateSpec, StateTensorSpec};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPoolSpec {
    /// Layers that share a space, dtype, heads and head dim.
    pub groups: Vec<KvGroupSpec>,
    /// Empty for a model without recurrent layers. The slots of all are one number.
    pub states: Vec<StateSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroupSpec {
    /// For messages and descriptors; `"full"` for full attention.
    pub name: &'static str,
    /// Layers of the model in this group, ascending. Layers of a group count from 0 in this order,
    /// in its memory and on the wire.
    pub layers: Vec<usize>,
    /// Per layer: 2, keys and values, or 1, latents.
    pub tensors: usize,
    /// KV heads of the whole model.
    pub total_heads: usize,
    pub head_dim: usize,
    /// Most keys that a query sees in a layer of the window space; `None`: the full space.
    pub window: Option<usize>,
}

/// Where a layer's keys and values are, or its states of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerPlace {
    /// In [`KvPoolSpec::groups`], or [`KvPoolSpec::states`].
    pub(super) group: usize,
    /// Among the layers of the group.
    pub(super) ordinal: usize,
}

// === impl KvPoolSpec ===

impl KvPoolSpec {
    /// Keys that a query sees in any layer of the window space, if the model has one.
    pub fn window(&self) -> Option<usize> {
        self.groups.iter().filter_map(|group| group.window).max()
    }

    /// # Panics
    /// If the layer is in no group.
    pub(super) fn pages_of(&self, layer: usize) -> LayerPlace {
        let layers = self.groups.iter().map(|group| &group.layers);
        let place = place_in(layers, layer);
        place.expect("every layer of attention is in a group")
    }

    /// # Panics
    /// If the layer has no state of the name.
    pub(super) fn state_of(&self, layer: usize, name: &str) -> LayerPlace {
        let layers = self.states.iter().map(|state| {
            let is_named = state.name == name;
            if is_named { &state.layers[..] } else { &[] }
        });
        let place = place_in(layers, layer);
        place.expect("every recurrent layer is among those of its states")
    }
}

fn place_in(
    mut groups: impl Iterator<Item = impl AsRef<[usize]>>,
    layer: usize,
) -> Option<LayerPlace> {
    let mut group = 0;
    groups.find_map(|layers| {
        let found = layers.as_ref().binary_search(&layer).ok();
        group += 1;
        found.map(|ordinal| LayerPlace {
            group: group - 1,
            ordinal,
        })
    })
}

// === impl KvGroupSpec ===

impl KvGroupSpec {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self {
            name,
            layers: _,
            tensors,
            total_heads,
            head_dim,
            window: _,
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
