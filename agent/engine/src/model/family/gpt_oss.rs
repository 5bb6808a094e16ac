//! gpt-oss: experts in all layers, attention with sinks, by turns within a window and to all, and biases in
//! every linear. Its published files have experts in MXFP4.

use super::def::FamilyDef;
use crate::model::config::fields::Fields;
use crate::model::config::{
    Attention, ConfigError, Ffn, Glu, LayerConfig, Mixer, ModelConfig, MoeFfn, Scores, narrow,
};
use crate::weights::{ExpertsRole, LayerRole, Role, names};
use serde_json::{Value, json};

/// Every so many layers one attends to all, where the file does not say otherwise.
const FULL_INTERVAL: usize = 2;

pub(super) static GPT_OSS: FamilyDef = FamilyDef {
    model_types: &["gpt_oss"],
    architectures: &["GptOssForCausalLM"],
    // The first two repeat what other keys say, and the class does not read them.
    neutral: &[
        "experts_per_token",
        "initial_context_length",
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    towers: None,
    quant_method: "mxfp4",
    absent,
    config,
    hf_names,
    drafts: None,
    gguf: None,
};

/// What the family's class in transformers takes for keys that are not written.
fn absent() -> Vec<(&'static str, Value)> {
    vec![
        ("attention_bias", json!(true)),
        ("head_dim", json!(64)),
        ("max_position_embeddings", json!(131_072)),
        ("num_attention_heads", json!(64)),
        ("num_experts_per_tok", json!(4)),
        ("num_key_value_heads", json!(8)),
        ("rms_norm_eps", json!(1e-5)),
        (
            "rope_parameters",
            json!({
                "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "truncate": false, "original_max_position_embeddings": 4096,
            }),
        ),
        ("rope_theta", json!(150_000.0)),
        ("sliding_window", json!(128)),
        ("swiglu_alpha", json!(1.702)),
        ("swiglu_limit", json!(7.0)),
    ]
}

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let family = GPT_OSS.family();
    let has_bias = fields.flag("attention_bias")? == Some(true);
    let attention = Attention {
        qkv_bias: has_bias,
        o_bias: has_bias,
        sinks: true,
        ..fields.attention()?
    };
    let window = fields.sliding_window()?;
    let ffn = Ffn::Moe(experts(fields)?);
    let layer = |is_full: bool| LayerConfig {
        mixer: Mixer::Attention(Attention {
            window: window.filter(|_| !is_full),
            ..attention
        }),
        ffn,
    };
    let is_full = fields.full_layers("sliding_attention", FULL_INTERVAL)?;
    let layers = is_full.into_iter().map(layer).collect();
    let rope = fields.rope(family, attention.head_dim)?;
    fields.model(family, vec![rope], layers)
}

fn experts(fields: &Fields) -> Result<MoeFfn, ConfigError> {
    fields.expect_text("hidden_act", "silu")?;
    Ok(MoeFfn {
        scores: Scores::SoftmaxOfChosen,
        glu: Glu::ClampedSilu {
            alpha: narrow(fields.positive("swiglu_alpha")?),
            limit: narrow(fields.positive("swiglu_limit")?),
        },
        biases: true,
        ..MoeFfn::softmax(
            fields.size("num_local_experts")?,
            fields.size("num_experts_per_tok")?,
            fields.size("intermediate_size")?,
        )
    })
}

/// Experts lie the other way round unless they are in MXFP4.
const NAMES: &[(LayerRole, Option<&str>)] = &[
    (LayerRole::Router, Some("mlp.router.weight")),
    (LayerRole::RouterBias, Some("mlp.router.bias")),
    (LayerRole::Experts(ExpertsRole::GateUp), None),
    (
        LayerRole::Experts(ExpertsRole::GateUpColumns),
        Some("mlp.experts.gate_up_proj"),
    ),
    (
        LayerRole::Experts(ExpertsRole::DownColumns),
        Some("mlp.experts.down_proj"),
    ),
];

fn hf_names(role: Role, prefix: &str) -> Option<String> {
    names::hf_with(NAMES, role, prefix)
}

#[cfg(test)]
mod tests;
