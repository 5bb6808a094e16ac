//! Which layers of a model are stored alike.

use super::{KvGroupSpec, KvPoolSpec, StateSpec};
use crate::model::config::ModelConfig;
use crate::model::mixer::{self, LayerStorage};

// === impl KvPoolSpec ===

impl KvPoolSpec {
    /// Layers that are stored alike make a group; groups are in the order of their first layers. A draft layer is the
    /// one after the last.
    pub fn of(config: &ModelConfig) -> Self {
        let mut spec = Self {
            groups: Vec::new(),
            states: Vec::new(),
        };
        for (index, layer) in config.kept_layers().enumerate() {
            match mixer::storage(&layer.mixer) {
                LayerStorage::Pages(group) => spec.add_pages(index, group),
                LayerStorage::States(states) => {
                    states
                        .into_iter()
                        .for_each(|state| spec.add_state(index, state));
                }
            }
        }
        if !spec.can_part(config) {
            spec.groups.iter_mut().for_each(|group| group.window = None);
        }
        spec
    }

    /// Whether layers with a window get a space of their own. The pages of the others count a sequence's tokens, and
    /// drafts of a draft layer and recurrent states go by those.
    fn can_part(&self, config: &ModelConfig) -> bool {
        let sees_all = |group: &KvGroupSpec| group.window.is_none();
        self.groups.iter().any(sees_all) && self.states.is_empty() && config.draft_layer.is_none()
    }

    fn add_pages(&mut self, layer: usize, own: KvGroupSpec) {
        match self.groups.iter_mut().find(|group| group.is_like(&own)) {
            Some(group) => {
                group.layers.push(layer);
                group.window = group.window.max(own.window);
            }
            None => self.groups.push(KvGroupSpec {
                layers: vec![layer],
                ..own
            }),
        }
    }

    fn add_state(&mut self, layer: usize, own: StateSpec) {
        match self.states.iter_mut().find(|state| state.is_like(&own)) {
            Some(state) => state.layers.push(layer),
            None => self.states.push(StateSpec {
                layers: vec![layer],
                ..own
            }),
        }
    }
}
