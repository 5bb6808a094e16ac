//! Qwen3, dense: as llama, with an RMS norm over each query and key head before RoPE. Its GGUF
//! files keep the rows of Q and K as they are, since llama.cpp rotates this family by halves.

use super::{Family, FamilyDef, GgufFamily};
use crate::model::config::fields::Fields;
use crate::model::config::hf::AttentionDefaults;
use crate::model::config::{Attention, ConfigError, ModelConfig};
use crate::weights::names;

pub(super) static QWEN3: FamilyDef = FamilyDef {
    model_types: &["qwen3"],
    architectures: &["Qwen3ForCausalLM"],
    neutral: &[],
    towers: None,
    quant_method: None,
    config,
    hf_names: names::hf,
    gguf: Some(GgufFamily {
        architecture: "qwen3",
        config: |keys| keys.dense_decoder(adapt),
        names: names::gguf,
        permuted_qk: false,
    }),
};

pub(super) fn adapt(attention: Attention) -> Attention {
    Attention {
        qk_norm: true,
        ..attention
    }
}

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    fields.expect_off("attention_bias")?;
    let attention = fields.attention(AttentionDefaults {
        num_kv_heads: Some(32),
        head_dim: Some(128),
    })?;
    fields.windowed_decoder(Family(&QWEN3), adapt(attention))
}

#[cfg(test)]
mod tests;
