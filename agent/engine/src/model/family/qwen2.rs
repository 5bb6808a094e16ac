//! Qwen2 and Qwen2.5, dense: as llama, with biases on queries, keys and values. Its GGUF files keep
//! the rows of Q and K as they are, since llama.cpp rotates this family by halves.

use super::def::{FP8, FamilyDef, GgufFamily};
use crate::model::config::fields::Fields;
use crate::model::config::{Attention, ConfigError, ModelConfig};
use crate::weights::names;
use serde_json::json;

pub(super) static QWEN2: FamilyDef = FamilyDef {
    model_types: &["qwen2"],
    architectures: &["Qwen2ForCausalLM"],
    neutral: &[],
    towers: None,
    quant_method: FP8,
    absent: || {
        vec![
            ("num_key_value_heads", json!(32)),
            ("sliding_window", json!(4096)),
            ("max_window_layers", json!(28)),
        ]
    },
    config,
    hf_names: names::hf,
    drafts: None,
    gguf: Some(GgufFamily {
        architecture: "qwen2",
        config: |keys| keys.dense_decoder(adapt),
        names: names::gguf,
        towers: &[],
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
    let attention = fields.attention()?;
    fields.windowed_decoder(QWEN2.family(), adapt(attention))
}

#[cfg(test)]
mod tests;
