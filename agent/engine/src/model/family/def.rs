//! What a family is made of.

use crate::model::config::fields::Fields;
use crate::model::config::gguf::keys::Keys;
use crate::model::config::{ConfigError, Family, ModelConfig};
use crate::weights::names::{DraftNames, GgufNames, HfNames};
use serde_json::Value;

/// `quant_method` of matrices in E4M3 with scales.
pub(crate) const FP8: &str = "fp8";

/// A family: a row of the table.
pub(crate) struct FamilyDef {
    /// `model_type` of config.json. The first one is the family's name.
    pub(crate) model_types: &'static [&'static str],
    /// The classes in config.json's `architectures`.
    pub(crate) architectures: &'static [&'static str],
    /// Keys of config.json, of those that not every family has, that change no number.
    pub(crate) neutral: &'static [&'static str],
    /// Keys that files of multimodal models have beside `text_config`, which then holds the decoder's. `None`: the
    /// family has no such files.
    pub(crate) towers: Option<&'static [&'static str]>,
    /// What the family's class in transformers takes for keys of config.json that are not written. A key that is
    /// `null` is written.
    pub(crate) absent: fn() -> Vec<(&'static str, Value)>,
    /// How the weights of a folder may be quantised, in the words of `quant_method`: "fp8" but for one family.
    pub(crate) quant_method: &'static str,
    pub(crate) config: fn(&Fields) -> Result<ModelConfig, ConfigError>,
    pub(crate) hf_names: HfNames,
    /// What its folders call a draft layer. `None`: they have none that is known.
    pub(crate) drafts: Option<DraftNames>,
    /// `None`: not read from GGUF files.
    pub(crate) gguf: Option<GgufFamily>,
}

/// A family in GGUF files.
#[derive(Debug)]
pub(crate) struct GgufFamily {
    /// `general.architecture`, with which the metadata's keys begin.
    pub(crate) architecture: &'static str,
    pub(crate) config: fn(&Keys<'_>) -> Result<ModelConfig, ConfigError>,
    pub(crate) names: GgufNames,
    /// How keys begin, behind the architecture's name, that are of what is beside the decoder.
    pub(crate) towers: &'static [&'static str],
    /// llama.cpp rotates neighbours in this architecture, so rows of Q and K are stored in pairs.
    pub(crate) permuted_qk: bool,
}

// === impl FamilyDef ===

impl FamilyDef {
    pub(crate) const fn family(&self) -> Family {
        Family::new(self.model_types[0])
    }
}
