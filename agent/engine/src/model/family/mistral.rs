//! Mistral: llama under another name, whose older files attend within a window in all layers. A
//! GGUF file of a Mistral says `llama`.

use super::def::{FP8, FamilyDef};
use crate::model::config::fields::Fields;
use crate::model::config::{Attention, ConfigError, LayerConfig, Mixer, ModelConfig};
use crate::weights::names;
use serde_json::json;

pub(super) static MISTRAL: FamilyDef = FamilyDef {
    model_types: &["mistral"],
    architectures: &["MistralForCausalLM"],
    neutral: &[],
    towers: None,
    quant_method: FP8,
    absent: || {
        vec![
            ("num_key_value_heads", json!(8)),
            // Newer files say `null`.
            ("sliding_window", json!(4096)),
        ]
    },
    config,
    hf_names: names::hf,
    drafts: None,
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let family = MISTRAL.family();
    let attention = fields.attention()?;
    let layer = LayerConfig {
        mixer: Mixer::Attention(Attention {
            window: fields.sliding_window()?,
            ..attention
        }),
        ffn: fields.dense_ffn()?,
    };
    let layers = vec![layer; fields.num_layers()?];
    let rope = fields.rope(family, attention.head_dim)?;
    fields.model(family, vec![rope], layers)
}

#[cfg(test)]
mod tests;
