//! The table of families. A family is data: how its files are recognised, which keys make which
//! layers, and what its tensors are called. Networks are built from layers (`model/decoder.rs`),
//! which know no family: one is added by a file here and a line in [`FAMILIES`].

mod gemma3;
mod gpt_oss;
mod llama;
mod mistral;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;

use super::config::fields::Fields;
use super::config::gguf::Keys;
use super::config::{ConfigError, ModelConfig};
use crate::weights::{GgufNames, HfNames};
use serde::{Serialize, Serializer};
use std::fmt;

const FAMILIES: &[&FamilyDef] = &[
    &gemma3::GEMMA3,
    &gpt_oss::GPT_OSS,
    &llama::LLAMA,
    &mistral::MISTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &qwen3_5::QWEN3_5,
    &qwen3_5_moe::QWEN3_5_MOE,
    &qwen3_moe::QWEN3_MOE,
];

/// A family of networks that this engine runs: a row of the table. Its JSON form is its name.
#[derive(Clone, Copy)]
pub struct Family(&'static FamilyDef);

/// What is to be known of a family.
pub(super) struct FamilyDef {
    /// `model_type` of config.json. The first one is the family's name.
    pub(super) model_types: &'static [&'static str],
    /// The classes in config.json's `architectures`.
    pub(super) architectures: &'static [&'static str],
    /// Keys of config.json, of those that not every family has, that change no number.
    pub(super) neutral: &'static [&'static str],
    /// Keys of other parts of a model, beside the decoder's, which are then in `text_config`. `None`: no such files
    /// are known.
    pub(super) towers: Option<&'static [&'static str]>,
    /// How the weights of a folder may be quantised.
    pub(super) quant_method: Option<&'static str>,
    pub(super) config: fn(&Fields) -> Result<ModelConfig, ConfigError>,
    pub(super) hf_names: HfNames,
    /// `None`: not read from GGUF files.
    pub(super) gguf: Option<GgufFamily>,
}

/// A family in GGUF files.
#[derive(Debug)]
pub(crate) struct GgufFamily {
    /// `general.architecture`, with which the metadata's keys begin.
    pub(super) architecture: &'static str,
    pub(super) config: fn(&Keys<'_>) -> Result<ModelConfig, ConfigError>,
    pub(super) names: GgufNames,
    /// llama.cpp rotates neighbours in this architecture, so rows of Q and K are stored in pairs.
    pub(super) permuted_qk: bool,
}

// === impl Family ===

impl Family {
    /// The family's `model_type` in config.json.
    pub fn name(self) -> &'static str {
        self.0.model_types[0]
    }

    pub(super) fn def(self) -> &'static FamilyDef {
        self.0
    }

    fn all() -> impl Iterator<Item = Self> {
        FAMILIES.iter().map(|def| Self(def))
    }

    pub(super) fn of_model_type(name: &str) -> Option<Self> {
        Self::all().find(|family| family.0.model_types.contains(&name))
    }

    pub(super) fn model_types() -> Vec<&'static str> {
        Self::all()
            .flat_map(|family| family.0.model_types)
            .copied()
            .collect()
    }

    /// The family of an architecture in GGUF files.
    pub(super) fn of_gguf(architecture: &str) -> Option<(Self, &'static GgufFamily)> {
        let mut in_gguf = Self::all().filter_map(|family| Some((family, family.0.gguf.as_ref()?)));
        in_gguf.find(|(_, gguf)| gguf.architecture == architecture)
    }

    pub(super) fn gguf_architectures() -> Vec<&'static str> {
        let in_gguf = Self::all().filter_map(|family| family.0.gguf.as_ref());
        in_gguf.map(|gguf| gguf.architecture).collect()
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests;
