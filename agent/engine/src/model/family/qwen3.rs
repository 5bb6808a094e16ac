//! Qwen3, dense: as llama, with an RMS norm over each query and key head before RoPE. Its GGUF
//! files keep the rows of Q and K as they are, since llama.cpp rotates this family by halves.

use super::def::{FP8, FamilyDef, GgufFamily};
use crate::model::config::fields::Fields;
use crate::model::config::{Attention, ConfigError, ModelConfig};
use crate::weights::names;
use serde_json::json;

pub(super) static QWEN3: FamilyDef = FamilyDef {
    model_types: &["qwen3"],
    architectures: &["Qwen3ForCausalLM"],
    neutral: &[],
    towers: None,
    quant_method: FP8,
    absent: || {
        vec![
            ("num_key_value_heads", json!(32)),
            ("head_dim", json!(128)),
            ("sliding_window", json!(4096)),
            ("max_window_layers", json!(28)),
        ]
    },
    config,
    hf_names: names::hf,
    drafts: None,
    gguf: Some(GgufFamily {
        architecture: "qwen3",
        config: |keys| keys.dense_decoder(adapt),
        names: names::gguf,
        towers: &[],
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
    let attention = fields.attention()?;
    fields.windowed_decoder(QWEN3.family(), adapt(attention))
}

#[cfg(test)]
mod tests;
