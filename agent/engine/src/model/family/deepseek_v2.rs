//! DeepSeek V2: the layers of deepseek_v3, with experts chosen by their softmax and without a bias.

use super::deepseek_v3::{self, NEUTRAL, decoder, experts, groups, hf_names};
use super::def::{FP8, FamilyDef};
use crate::model::config::fields::Fields;
use crate::model::config::{ConfigError, GroupScore, ModelConfig, MoeFfn};
use serde_json::json;

pub(super) static DEEPSEEK_V2: FamilyDef = FamilyDef {
    model_types: &["deepseek_v2"],
    architectures: &["DeepseekV2ForCausalLM"],
    neutral: NEUTRAL,
    towers: None,
    quant_method: FP8,
    absent: || {
        vec![
            ("first_k_dense_replace", json!(0)),
            ("kv_lora_rank", json!(512)),
            ("n_routed_experts", json!(64)),
            ("n_shared_experts", json!(2)),
            ("q_lora_rank", json!(1536)),
            ("qk_nope_head_dim", json!(128)),
            ("qk_rope_head_dim", json!(64)),
            ("routed_scaling_factor", json!(1.0)),
            ("topk_method", json!("greedy")),
            ("v_head_dim", json!(128)),
        ]
    },
    config,
    hf_names,
    drafts: None,
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    const METHOD: &str = "topk_method";
    fields.expect_off("mlp_bias")?;
    fields.expect_text("scoring_func", "softmax")?;
    // The class does not read it, and what the publisher's code does with it is something else.
    fields.expect_off("norm_topk_prob")?;
    // Without groups, too, files say how many there are.
    let _ = (fields.get("n_group"), fields.get("topk_group"));
    let groups = match fields.text(METHOD)? {
        Some("greedy") => None,
        Some("group_limited_greedy") => groups(fields, GroupScore::Best)?,
        other => {
            let method = other.unwrap_or("null");
            return Err(fields.unsupported(METHOD, method, "greedy, group_limited_greedy"));
        }
    };
    let experts = MoeFfn {
        groups,
        ..experts(fields)?
    };
    let mla = deepseek_v3::mla(fields)?;
    decoder(fields, DEEPSEEK_V2.family(), mla, experts)
}

#[cfg(test)]
mod tests;
