//! Gemma 3: norms before and after attention and the feed-forward, a feed-forward with GELU, scaled
//! embeddings, and layers that attend within a window between some that attend to all. Each kind rotates
//! by its own theta. A norm's weight is stored as w and applied as 1 + w. Files of models for images have a
//! vision tower beside the decoder, which is not read.

use super::def::{FP8, FamilyDef, GgufFamily};
use crate::model::config::fields::Fields;
use crate::model::config::gguf::keys::Keys;
use crate::model::config::{
    Attention, ConfigError, DenseFfn, Family, Ffn, Glu, LayerConfig, Mixer, ModelConfig, Rope,
    RopeScaling, narrow,
};
use crate::weights::{LayerRole, Role, names};
use serde_json::{Value, json};

/// Every so many layers one attends to all, where the file does not say otherwise.
const DEFAULT_FULL_INTERVAL: usize = 6;

/// Places in [`ModelConfig::ropes`].
const FULL_ROPE: usize = 0;
const SLIDING_ROPE: usize = 1;

/// Of the sliding layers' rope, where the file does not say otherwise.
const SLIDING_THETA: f64 = 1e4;

pub(super) static GEMMA3: FamilyDef = FamilyDef {
    model_types: &["gemma3", "gemma3_text"],
    architectures: &["Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"],
    neutral: &["cache_implementation"],
    towers: Some(&[
        "boi_token_index",
        "eoi_token_index",
        "image_token_id",
        "image_token_index",
        "mm_tokens_per_image",
        "vision_config",
    ]),
    quant_method: FP8,
    absent,
    config,
    hf_names,
    drafts: None,
    gguf: Some(GgufFamily {
        architecture: "gemma3",
        config: gguf_config,
        names: gguf_names,
        towers: &["vision.", "mm."],
        permuted_qk: false,
    }),
};

/// What the family's class in transformers takes for keys that are not written, as most are not in
/// published files.
fn absent() -> Vec<(&'static str, Value)> {
    vec![
        ("vocab_size", json!(262_208)),
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(4)),
        ("head_dim", json!(256)),
        ("query_pre_attn_scalar", json!(256)),
        ("max_position_embeddings", json!(131_072)),
        ("rms_norm_eps", json!(1e-6)),
        ("tie_word_embeddings", json!(true)),
        ("sliding_window", json!(4096)),
        ("sliding_window_pattern", json!(DEFAULT_FULL_INTERVAL)),
        ("rope_theta", json!(1e6)),
        ("rope_local_base_freq", json!(SLIDING_THETA)),
        ("bos_token_id", json!(2)),
        ("eos_token_id", json!(1)),
    ]
}

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let family = GEMMA3.family();
    fields.expect_off("attention_bias")?;
    fields.expect_off("use_bidirectional_attention")?;
    if let Some(cap) = fields.number("attn_logit_softcapping")? {
        return Err(fields.unsupported("attn_logit_softcapping", &cap.to_string(), "null"));
    }
    let attention = Attention {
        scale: narrow(fields.positive("query_pre_attn_scalar")?.powf(-0.5)),
        qk_norm: true,
        out_norm: true,
        ..fields.attention()?
    };
    let window = fields.sliding_window()?;
    let ffn = Ffn::Dense(ffn(fields)?);
    let layers = full_layers(fields)?.into_iter();
    let layers = layers.map(|is_full| layer(attention, ffn, window, is_full));
    let ropes = ropes(fields, family, attention.head_dim)?;
    let config = fields.model(family, ropes.into(), layers.collect())?;
    Ok(ModelConfig {
        norm_plus_one: true,
        embed_scale: Some(narrow((config.hidden_size as f64).sqrt())),
        final_softcap: fields.number("final_logit_softcapping")?.map(narrow),
        ..config
    })
}

fn layer(attention: Attention, ffn: Ffn, window: Option<usize>, is_full: bool) -> LayerConfig {
    LayerConfig {
        mixer: Mixer::Attention(Attention {
            rope: if is_full { FULL_ROPE } else { SLIDING_ROPE },
            window: window.filter(|_| !is_full),
            ..attention
        }),
        ffn,
    }
}

fn ffn(fields: &Fields) -> Result<DenseFfn, ConfigError> {
    fields.expect_text("hidden_activation", "gelu_pytorch_tanh")?;
    Ok(DenseFfn {
        width: fields.size("intermediate_size")?,
        glu: Glu::GeluTanh,
        out_norm: true,
    })
}

fn full_layers(fields: &Fields) -> Result<Vec<bool>, ConfigError> {
    // What transformers notes beside the `layer_types` that it writes.
    fields.size_opt("_sliding_window_pattern")?;
    let interval = fields.size("sliding_window_pattern")?;
    fields.full_layers("sliding_attention", interval)
}

/// An older file's `rope_scaling` is that of the full layers alone.
fn ropes(fields: &Fields, family: Family, head_dim: usize) -> Result<[Rope; 2], ConfigError> {
    let by_type = fields.object("rope_parameters")?;
    let of_type = |key| by_type.as_ref().map_or(Ok(None), |types| types.object(key));
    let full = match fields.object("rope_scaling")? {
        Some(older) => Some(older),
        None => of_type("full_attention")?,
    };
    let sliding = of_type("sliding_attention")?;
    if let Some(by_type) = &by_type {
        by_type.refuse_unknown(family, &[])?;
    }
    Ok([
        fields.rope_in(family, full.as_ref(), "rope_theta", head_dim)?,
        fields.rope_in(family, sliding.as_ref(), "rope_local_base_freq", head_dim)?,
    ])
}

/// The norm before the feed-forward has another name than in a llama, where its name is that of the norm after
/// attention here.
const NAMES: &[(LayerRole, Option<&str>)] = &[
    (
        LayerRole::MixerOutNorm,
        Some("post_attention_layernorm.weight"),
    ),
    (LayerRole::FfnNorm, Some("pre_feedforward_layernorm.weight")),
    (
        LayerRole::FfnOutNorm,
        Some("post_feedforward_layernorm.weight"),
    ),
];

fn hf_names(role: Role, prefix: &str) -> Option<String> {
    names::hf_with(NAMES, role, prefix)
}

/// llama.cpp knows the scale of queries by the number of layers: of the largest model, of 27 billion weights, it is that of
/// hidden / heads, of the others that of a head.
const LAYERS_OF_27B: usize = 62;

/// Norms are stored with the 1 added, and sliding layers rotate unscaled.
fn gguf_config(keys: &Keys<'_>) -> Result<ModelConfig, ConfigError> {
    let config = keys.dense_decoder(|attention| attention)?;
    let num_layers = config.layers.len();
    let plain = keys.attention()?;
    let scaled_by = if num_layers == LAYERS_OF_27B {
        config.hidden_size as f64 / plain.num_heads as f64
    } else {
        plain.head_dim as f64
    };
    let attention = Attention {
        scale: narrow(scaled_by.powf(-0.5)),
        qk_norm: true,
        out_norm: true,
        ..plain
    };
    let ffn = Ffn::Dense(DenseFfn {
        width: keys.size("feed_forward_length")?,
        glu: Glu::GeluTanh,
        out_norm: true,
    });
    let window = keys.size_opt("attention.sliding_window")?;
    let window = window.filter(|window| *window > 0);
    let interval = keys.size_opt("attention.sliding_window_pattern")?;
    let interval = interval.unwrap_or(DEFAULT_FULL_INTERVAL);
    let is_full =
        |at: usize| window.is_none() || (interval > 0 && (at + 1).is_multiple_of(interval));
    let full = config.ropes[FULL_ROPE];
    let sliding = Rope {
        theta: keys.number("rope.freq_base_swa")?.unwrap_or(SLIDING_THETA),
        scaling: RopeScaling::None,
        ..full
    };
    let layer = |at| layer(attention, ffn, window, is_full(at));
    Ok(ModelConfig {
        layers: (0..num_layers).map(layer).collect(),
        ropes: vec![full, sliding],
        embed_scale: Some(narrow((config.hidden_size as f64).sqrt())),
        final_softcap: keys.number("final_logit_softcapping")?.map(narrow),
        ..config
    })
}

const GGUF_NAMES: &[(LayerRole, &str)] = &[
    (LayerRole::MixerOutNorm, "post_attention_norm.weight"),
    (LayerRole::FfnOutNorm, "post_ffw_norm.weight"),
];

fn gguf_names(role: Role) -> Option<String> {
    if let Role::Layer(layer, of_layer) = role
        && let Some((_, name)) = GGUF_NAMES.iter().find(|(role, _)| *role == of_layer)
    {
        return Some(format!("blk.{layer}.{name}"));
    }
    names::gguf(role)
}

#[cfg(test)]
mod tests;
