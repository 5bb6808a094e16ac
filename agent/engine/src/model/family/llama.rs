//! Llama: grouped-query attention, RoPE over the whole head, SwiGLU. Many other models have this
//! architecture under their own names; only files that say `llama` are read.

use super::def::{FP8, FamilyDef, GgufFamily};
use crate::model::config::fields::Fields;
use crate::model::config::{ConfigError, LayerConfig, Mixer, ModelConfig};
use crate::weights::names;

pub(super) static LLAMA: FamilyDef = FamilyDef {
    model_types: &["llama"],
    architectures: &["LlamaForCausalLM"],
    // How matrices were cut in training, and a note of SmolLM's.
    neutral: &["pretraining_tp", "is_llama_config"],
    towers: None,
    quant_method: FP8,
    absent: Vec::new,
    config,
    hf_names: names::hf,
    drafts: None,
    gguf: Some(GgufFamily {
        architecture: "llama",
        config: |keys| keys.dense_decoder(|attention| attention),
        names: names::gguf,
        towers: &[],
        permuted_qk: true,
    }),
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let family = LLAMA.family();
    fields.expect_off("attention_bias")?;
    fields.expect_off("mlp_bias")?;
    let attention = fields.attention()?;
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: fields.dense_ffn()?,
    };
    let layers = vec![layer; fields.num_layers()?];
    let rope = fields.rope(family, attention.head_dim)?;
    fields.model(family, vec![rope], layers)
}

#[cfg(test)]
mod tests;
