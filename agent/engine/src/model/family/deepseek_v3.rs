//! DeepSeek V3 and R1: multi-head latent attention, some dense layers and then experts, of which those of the best
//! groups are chosen by sigmoids and a bias, with one that all tokens share. A draft layer comes after the others in
//! its files.

use super::def::{FP8, FamilyDef};
use crate::model::config::fields::Fields;
use crate::model::config::{
    ConfigError, ExpertGroups, Family, Ffn, GroupScore, LayerConfig, Mixer, Mla, ModelConfig,
    MoeFfn, Scores, SharedExpert, invalid, narrow,
};
use crate::weights::{DraftNames, ExpertRole, LayerRole, Role, names};
use serde_json::json;

/// Keys of the training, of draft layers and of layers of another kind than the file's.
pub(super) const NEUTRAL: &[&str] = &[
    "aux_loss_alpha",
    "ep_size",
    "intermediate_size",
    "num_nextn_predict_layers",
    "output_router_logits",
    "pretraining_tp",
    "seq_aux",
];

/// The layer after the last. Its files repeat embedding and head there, which are the model's.
const DRAFTS: DraftNames = DraftNames {
    prefix: None,
    embedding_norm: "enorm.weight",
    hidden_norm: "hnorm.weight",
    projection: "eh_proj.weight",
    output_norm: "shared_head.norm.weight",
};

pub(super) static DEEPSEEK_V3: FamilyDef = FamilyDef {
    model_types: &["deepseek_v3"],
    architectures: &["DeepseekV3ForCausalLM"],
    neutral: NEUTRAL,
    towers: None,
    quant_method: FP8,
    absent: || {
        vec![
            ("first_k_dense_replace", json!(3)),
            ("kv_lora_rank", json!(512)),
            ("n_group", json!(8)),
            ("n_shared_experts", json!(1)),
            ("norm_topk_prob", json!(true)),
            ("num_experts_per_tok", json!(8)),
            ("q_lora_rank", json!(1536)),
            ("qk_nope_head_dim", json!(128)),
            ("qk_rope_head_dim", json!(64)),
            ("rope_interleave", json!(true)),
            ("routed_scaling_factor", json!(2.5)),
            ("topk_group", json!(4)),
            ("v_head_dim", json!(128)),
        ]
    },
    config,
    hf_names,
    drafts: Some(DRAFTS),
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    fields.expect_text("scoring_func", "sigmoid")?;
    fields.expect_text("topk_method", "noaux_tc")?;
    let experts = MoeFfn {
        scores: Scores::Sigmoid,
        groups: groups(fields, GroupScore::SumOfTwoBest)?,
        choice_bias: true,
        normalise: fields.flag("norm_topk_prob")?.unwrap_or(false),
        ..experts(fields)?
    };
    let mla = Mla {
        rope_interleaved: fields.flag("rope_interleave")?.unwrap_or(false),
        ..mla(fields)?
    };
    decoder(fields, DEEPSEEK_V3.family(), mla, experts)
}

/// A decoder of latent attention with experts after the dense layers.
pub(super) fn decoder(
    fields: &Fields,
    family: Family,
    mla: Mla,
    experts: MoeFfn,
) -> Result<ModelConfig, ConfigError> {
    const FREQUENCY: &str = "moe_layer_freq";
    if let Some(frequency) = fields.size_opt(FREQUENCY)?
        && frequency != 1
    {
        return Err(fields.unsupported(FREQUENCY, &frequency.to_string(), "1"));
    }
    let first = fields.size("first_k_dense_replace")?;
    let layer = |layer: usize| -> Result<LayerConfig, ConfigError> {
        let ffn = if layer < first {
            fields.dense_ffn()?
        } else {
            Ffn::Moe(experts)
        };
        Ok(LayerConfig {
            mixer: Mixer::Mla(mla),
            ffn,
        })
    };
    let layers: Result<Vec<_>, _> = (0..fields.num_layers()?).map(layer).collect();
    let rope = fields.rope(family, mla.rope_dim)?;
    fields.model(family, vec![rope], layers?)
}

/// Attention whose rotated pairs are stored as neighbours.
pub(super) fn mla(fields: &Fields) -> Result<Mla, ConfigError> {
    fields.expect_off("attention_bias")?;
    let num_heads = fields.size("num_attention_heads")?;
    let nope_dim = fields.size("qk_nope_head_dim")?;
    let rope_dim = fields.size("qk_rope_head_dim")?;
    let q_dim = nope_dim.saturating_add(rope_dim);
    for (key, expected, what) in [
        ("num_key_value_heads", num_heads, "the num_attention_heads"),
        ("head_dim", rope_dim, "the qk_rope_head_dim"),
        ("qk_head_dim", q_dim, "the sum of the parts of a head,"),
    ] {
        if let Some(size) = fields.size_opt(key)?
            && size != expected
        {
            let expected = format!("{what} {expected}");
            return Err(invalid(fields.file(), key, size, expected));
        }
    }
    let scale = (q_dim as f64).powf(-0.5) * fields.yarn_score_scale()?;
    Ok(Mla {
        num_heads,
        q_lora_rank: fields.size_opt("q_lora_rank")?,
        kv_lora_rank: fields.size("kv_lora_rank")?,
        nope_dim,
        rope_dim,
        v_dim: fields.size("v_head_dim")?,
        scale: narrow(scale),
        rope: 0,
        rope_interleaved: true,
    })
}

/// Experts that are chosen by their softmax, with those that all tokens share as one.
pub(super) fn experts(fields: &Fields) -> Result<MoeFfn, ConfigError> {
    fields.expect_text("hidden_act", "silu")?;
    let width = fields.size("moe_intermediate_size")?;
    let shared = fields.size_opt("n_shared_experts")?.unwrap_or(0);
    Ok(MoeFfn {
        scale: narrow(fields.positive("routed_scaling_factor")?),
        shared: (shared > 0).then(|| SharedExpert {
            width: width.saturating_mul(shared),
            gated: false,
        }),
        ..MoeFfn::softmax(
            fields.size("n_routed_experts")?,
            fields.size("num_experts_per_tok")?,
            width,
        )
    })
}

/// One group of all experts is none.
pub(super) fn groups(
    fields: &Fields,
    score: GroupScore,
) -> Result<Option<ExpertGroups>, ConfigError> {
    let groups = ExpertGroups {
        count: fields.size("n_group")?,
        chosen: fields.size("topk_group")?,
        score,
    };
    Ok(Some(groups).filter(|groups| (groups.count, groups.chosen) != (1, 1)))
}

const NAMES: &[(LayerRole, Option<&str>)] = &[
    (LayerRole::QA, Some("self_attn.q_a_proj.weight")),
    (LayerRole::QANorm, Some("self_attn.q_a_layernorm.weight")),
    (LayerRole::QB, Some("self_attn.q_b_proj.weight")),
    (LayerRole::KvA, Some("self_attn.kv_a_proj_with_mqa.weight")),
    (LayerRole::KvANorm, Some("self_attn.kv_a_layernorm.weight")),
    (LayerRole::KvB, Some("self_attn.kv_b_proj.weight")),
    (
        LayerRole::ChoiceBias,
        Some("mlp.gate.e_score_correction_bias"),
    ),
    (
        LayerRole::Shared(ExpertRole::Gate),
        Some("mlp.shared_experts.gate_proj.weight"),
    ),
    (
        LayerRole::Shared(ExpertRole::Up),
        Some("mlp.shared_experts.up_proj.weight"),
    ),
    (
        LayerRole::Shared(ExpertRole::Down),
        Some("mlp.shared_experts.down_proj.weight"),
    ),
];

pub(super) fn hf_names(role: Role, prefix: &str) -> Option<String> {
    names::hf_with(NAMES, role, prefix)
}

#[cfg(test)]
mod tests;
