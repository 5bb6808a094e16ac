//! Mistral: llama under another name, whose older files attend within a window in all layers. A
//! GGUF file of a Mistral says `llama`.

use super::{Family, FamilyDef};
use crate::model::config::fields::Fields;
use crate::model::config::hf::AttentionDefaults;
use crate::model::config::{Attention, ConfigError, LayerConfig, Mixer, ModelConfig};
use crate::weights::names;

/// A query sees as many keys where the file says nothing; newer files say `null`.
const DEFAULT_WINDOW: usize = 4096;

pub(super) static MISTRAL: FamilyDef = FamilyDef {
    model_types: &["mistral"],
    architectures: &["MistralForCausalLM"],
    neutral: &[],
    towers: None,
    quant_method: None,
    config,
    hf_names: names::hf,
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let family = Family(&MISTRAL);
    let attention = fields.attention(AttentionDefaults {
        num_kv_heads: Some(8),
        head_dim: None,
    })?;
    let layer = LayerConfig {
        mixer: Mixer::Attention(Attention {
            window: fields.sliding_window(Some(DEFAULT_WINDOW))?,
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
