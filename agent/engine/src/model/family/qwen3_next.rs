//! Qwen3-Next: the layers of qwen3_5_moe, with the rows of a gated delta layer grouped by key head in its files.

use super::def::{FP8, FamilyDef};
use super::{qwen3_5, qwen3_5_moe, qwen3_moe};
use crate::model::config::fields::Fields;
use crate::model::config::{ConfigError, ModelConfig};
use crate::weights::{LayerRole, Role, names};
use serde_json::json;

pub(super) static QWEN3_NEXT: FamilyDef = FamilyDef {
    model_types: &["qwen3_next"],
    architectures: &["Qwen3NextForCausalLM"],
    // `intermediate_size` is that of dense layers.
    neutral: &[
        "intermediate_size",
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    towers: None,
    quant_method: FP8,
    absent: || {
        vec![
            ("num_key_value_heads", json!(2)),
            ("head_dim", json!(256)),
            ("full_attention_interval", json!(4)),
            ("norm_topk_prob", json!(true)),
            ("partial_rotary_factor", json!(0.25)),
        ]
    },
    config,
    hf_names,
    drafts: Some(qwen3_5::DRAFTS),
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let ffns = qwen3_moe::ffns(fields, qwen3_5_moe::experts(fields)?)?;
    qwen3_5::decoder(fields, QWEN3_NEXT.family(), ffns, &[])
}

/// Rows grouped by key head, where those of qwen3_5 lie apart.
const NAMES: &[(LayerRole, Option<&str>)] = &[
    (LayerRole::DeltaQkv, None),
    (LayerRole::DeltaZ, None),
    (LayerRole::DeltaB, None),
    (LayerRole::DeltaA, None),
    (
        LayerRole::DeltaQkvz,
        Some("linear_attn.in_proj_qkvz.weight"),
    ),
    (LayerRole::DeltaBa, Some("linear_attn.in_proj_ba.weight")),
];

fn hf_names(role: Role, prefix: &str) -> Option<String> {
    names::hf_with(NAMES, role, prefix)
}

#[cfg(test)]
mod tests;
