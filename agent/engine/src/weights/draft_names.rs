//! The names of a draft layer's tensors: a layer's names in a place of their own, and those around it.

use super::names::{DraftNames, DraftRole, HfNames, Role};

/// Where the files of a model have its draft layer.
#[derive(Clone, Copy, Debug)]
pub struct DraftPlace {
    /// Its number as a layer: that of the model's layers.
    pub layer: usize,
    pub names: DraftNames,
}

// === impl DraftPlace ===

impl DraftPlace {
    /// The name of a tensor of the draft layer; `None` for one of the model.
    pub(super) fn name(&self, role: Role, names: HfNames, prefix: &str) -> Option<String> {
        match (role, self.names.prefix) {
            (Role::Draft(role), Some(own)) => Some(format!("{own}{}", self.suffix(role))),
            (Role::Draft(role), None) => {
                let layer = self.layer;
                Some(format!("{prefix}layers.{layer}.{}", self.suffix(role)))
            }
            (Role::Layer(layer, role), Some(own)) if layer == self.layer => {
                names(Role::Layer(0, role), own)
            }
            (
                Role::Layer(..)
                | Role::Embedding
                | Role::OutputNorm
                | Role::LmHead
                | Role::RopeFactors,
                _,
            ) => None,
        }
    }

    fn suffix(&self, role: DraftRole) -> &'static str {
        match role {
            DraftRole::EmbeddingNorm => self.names.embedding_norm,
            DraftRole::HiddenNorm => self.names.hidden_norm,
            DraftRole::Projection => self.names.projection,
            DraftRole::OutputNorm => self.names.output_norm,
        }
    }
}
