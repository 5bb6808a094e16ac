//! The table of families. A family is data: how its files are recognised, which keys make which
//! layers, and what its tensors are called. Networks are built from layers (`model/decoder.rs`),
//! which know no family: one is added by a file here and a line in [`FAMILIES`].

mod deepseek_v2;
mod deepseek_v3;
mod def;
mod gemma3;
mod gpt_oss;
mod llama;
mod mistral;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;

use super::config::Family;
use crate::weights::DraftNames;
pub(super) use def::{FP8, FamilyDef, GgufFamily};

const FAMILIES: &[&FamilyDef] = &[
    &deepseek_v2::DEEPSEEK_V2,
    &deepseek_v3::DEEPSEEK_V3,
    &gemma3::GEMMA3,
    &gpt_oss::GPT_OSS,
    &llama::LLAMA,
    &mistral::MISTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &qwen3_5::QWEN3_5,
    &qwen3_5_moe::QWEN3_5_MOE,
    &qwen3_moe::QWEN3_MOE,
    &qwen3_next::QWEN3_NEXT,
];

/// The family that answers to a `model_type` of config.json.
pub(super) fn of_model_type(name: &str) -> Option<&'static FamilyDef> {
    let mut all = FAMILIES.iter().copied();
    all.find(|def| def.model_types.contains(&name))
}

/// What a family's folders call a draft layer; `None` for a family that has none.
pub(super) fn draft_names(family: Family) -> Option<DraftNames> {
    of_model_type(family.name())?.drafts
}

/// Every `model_type` that is read.
pub(super) fn model_types() -> Vec<&'static str> {
    let types = FAMILIES.iter().flat_map(|def| def.model_types);
    types.copied().collect()
}

/// The family of an architecture in GGUF files.
pub(super) fn of_gguf(architecture: &str) -> Option<(Family, &'static GgufFamily)> {
    let mut in_gguf = FAMILIES
        .iter()
        .filter_map(|def| Some((def.family(), def.gguf.as_ref()?)));
    in_gguf.find(|(_, gguf)| gguf.architecture == architecture)
}

pub(super) fn gguf_architectures() -> Vec<&'static str> {
    let in_gguf = FAMILIES.iter().filter_map(|def| def.gguf.as_ref());
    in_gguf.map(|gguf| gguf.architecture).collect()
}

#[cfg(test)]
mod tests;
