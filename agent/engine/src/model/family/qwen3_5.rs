//! Qwen3.5, dense: three layers of the gated delta rule, then one of attention with gates, of whose heads a
//! part is rotated. Norms are stored as w and mean 1 + w, but for that of the delta layers. Files of models
//! that see have a tower beside the decoder, which is not read.

use super::{Family, FamilyDef};
use crate::model::config::fields::Fields;
use crate::model::config::hf::AttentionDefaults;
use crate::model::config::{
    Attention, ConfigError, Ffn, GatedDelta, LayerConfig, Mixer, ModelConfig,
};
use crate::weights::names;

/// What the family's class in transformers takes for keys that are not written.
const DEFAULT_FULL_INTERVAL: usize = 4;
const DEFAULT_ROTATED: f64 = 0.25;

/// Keys beside the decoder's.
pub(super) const TOWERS: &[&str] = &[
    "image_token_id",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
];

pub(super) static QWEN3_5: FamilyDef = FamilyDef {
    model_types: &["qwen3_5", "qwen3_5_text"],
    architectures: &["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"],
    // Draft layers are not read.
    neutral: &["mtp_num_hidden_layers"],
    towers: Some(TOWERS),
    quant_method: None,
    config,
    hf_names: names::hf,
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    decoder(fields, Family(&QWEN3_5), fields.dense_ffn()?)
}

/// A decoder of this kind with `ffn` in all layers.
pub(super) fn decoder(
    fields: &Fields,
    family: Family,
    ffn: Ffn,
) -> Result<ModelConfig, ConfigError> {
    fields.expect_off("attention_bias")?;
    fields.expect_off("mtp_use_dedicated_embeddings")?;
    fields.expect_text("mamba_ssm_dtype", "float32")?;
    if fields.flag("attn_output_gate")? == Some(false) {
        return Err(fields.unsupported("attn_output_gate", "false", "true"));
    }
    let attention = Attention {
        qk_norm: true,
        gated: true,
        ..fields.attention(AttentionDefaults {
            num_kv_heads: Some(4),
            head_dim: Some(256),
        })?
    };
    let delta = gated_delta(fields)?;
    let layer = |is_full| LayerConfig {
        mixer: if is_full {
            Mixer::Attention(attention)
        } else {
            Mixer::GatedDelta(delta)
        },
        ffn,
    };
    let interval = fields.size_opt("full_attention_interval")?;
    let interval = interval.unwrap_or(DEFAULT_FULL_INTERVAL);
    let is_full = fields.full_layers("linear_attention", interval)?;
    let layers = is_full.into_iter().map(layer).collect();
    let rope = fields.partial_rope(family, attention.head_dim, DEFAULT_ROTATED)?;
    let config = fields.model(family, vec![rope], layers)?;
    Ok(ModelConfig {
        norm_plus_one: true,
        ..config
    })
}

fn gated_delta(fields: &Fields) -> Result<GatedDelta, ConfigError> {
    Ok(GatedDelta {
        num_k_heads: fields.size("linear_num_key_heads")?,
        num_v_heads: fields.size("linear_num_value_heads")?,
        k_dim: fields.size("linear_key_head_dim")?,
        v_dim: fields.size("linear_value_head_dim")?,
        taps: fields.size("linear_conv_kernel_dim")?,
    })
}

#[cfg(test)]
mod tests;
