//! Qwen2 and Qwen2.5, dense: as llama, with biases on queries, keys and values. Its GGUF files keep
//! the rows of Q and K as they are, since llama.cpp rotates this family by halves.

use super::{Family, FamilyDef, GgufFamily};
use crate::model::config::fields::Fields;
use crate::model::config::hf::AttentionDefaults;
use crate::model::config::{Attention, ConfigError, ModelConfig};
use crate::weights::names;

pub(super) static QWEN2: FamilyDef = FamilyDef {
    model_types: &["qwen2"],
    architectures: &["Qwen2ForCausalLM"],
    neutral: &[],
    towers: None,
    quant_method: None,
    config,
    hf_names: names::hf,
    gguf: Some(GgufFamily {
        architecture: "qwen2",
        config: |keys| keys.dense_decoder(adapt),
        names: names::gguf,
        permuted_qk: false,
    }),
};

fn adapt(attention: Attention) -> Attention {
    Attention {
        qkv_bias: true,
        ..attention
    }
}

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let attention = fields.attention(AttentionDefaults {
        num_kv_heads: Some(32),
        head_dim: None,
    })?;
    fields.windowed_decoder(Family(&QWEN2), adapt(attention))
}

#[cfg(test)]
mod tests;
