//! Qwen3.5, dense: three layers of the gated delta rule, then one of gated attention, which rotates a part of each
//! head. A norm's weight is stored as w and applied as 1 + w, except in the delta layers. Files of models for
//! images have a vision tower beside the decoder, which is not read.

use super::def::{FP8, FamilyDef};
use crate::model::config::fields::Fields;
use crate::model::config::{
    Attention, ConfigError, Family, Ffn, GatedDelta, LayerConfig, Mixer, ModelConfig,
};
use crate::weights::{DraftNames, names};
use serde_json::{Value, json};

/// Keys beside the decoder's.
pub(super) const TOWERS: &[&str] = &[
    "image_token_id",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
];

/// Keys of the rotation, whose pairs may be divided among the coordinates of images; text has one position for all.
pub(super) const IMAGE_ROPE: &[&str] = &["mrope_section", "mrope_interleaved"];

/// `mtp.*`: a layer of full attention beside the decoder.
pub(super) const DRAFTS: DraftNames = DraftNames {
    prefix: Some("mtp."),
    embedding_norm: "pre_fc_norm_embedding.weight",
    hidden_norm: "pre_fc_norm_hidden.weight",
    projection: "fc.weight",
    output_norm: "norm.weight",
};

pub(super) static QWEN3_5: FamilyDef = FamilyDef {
    model_types: &["qwen3_5", "qwen3_5_text"],
    architectures: &["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"],
    // A draft layer is read where its tensors are.
    neutral: &["mtp_num_hidden_layers"],
    towers: Some(TOWERS),
    quant_method: FP8,
    absent,
    config,
    hf_names: names::hf,
    drafts: Some(DRAFTS),
    gguf: None,
};

/// What the family's class in transformers takes for keys that are not written.
pub(super) fn absent() -> Vec<(&'static str, Value)> {
    vec![
        ("num_key_value_heads", json!(4)),
        ("head_dim", json!(256)),
        ("full_attention_interval", json!(4)),
        ("partial_rotary_factor", json!(0.25)),
    ]
}

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let ffns = vec![fields.dense_ffn()?; fields.num_layers()?];
    decoder(fields, QWEN3_5.family(), ffns, IMAGE_ROPE)
}

/// A decoder of this kind with a feed-forward for each layer.
pub(super) fn decoder(
    fields: &Fields,
    family: Family,
    ffns: Vec<Ffn>,
    neutral_in_rope: &[&str],
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
        ..fields.attention()?
    };
    let delta = gated_delta(fields)?;
    let layer = |(is_full, ffn)| LayerConfig {
        mixer: if is_full {
            Mixer::Attention(attention)
        } else {
            Mixer::GatedDelta(delta)
        },
        ffn,
    };
    let interval = fields.size_opt("full_attention_interval")?;
    let is_full = fields.full_layers("linear_attention", interval.unwrap_or(0))?;
    let layers = is_full.into_iter().zip(ffns).map(layer).collect();
    let rope = fields.partial_rope(family, attention.head_dim, neutral_in_rope)?;
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
