//! Qwen3.5 with experts: the layers of qwen3_5, with a mixture of experts and one that all tokens share in the
//! place of the feed-forward.

use super::def::{FP8, FamilyDef};
use super::qwen3_5::{self, IMAGE_ROPE, TOWERS, decoder};
use super::qwen3_moe;
use crate::model::config::fields::Fields;
use crate::model::config::{ConfigError, Ffn, ModelConfig, MoeFfn, SharedExpert};
use crate::weights::names;

pub(super) static QWEN3_5_MOE: FamilyDef = FamilyDef {
    model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
    architectures: &[
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
    ],
    // A draft layer is read where its tensors are.
    neutral: &[
        "mtp_num_hidden_layers",
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    towers: Some(TOWERS),
    quant_method: FP8,
    absent: qwen3_5::absent,
    config,
    hf_names: names::hf,
    drafts: Some(qwen3_5::DRAFTS),
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let experts = MoeFfn {
        normalise: true,
        ..experts(fields)?
    };
    let ffns = vec![Ffn::Moe(experts); fields.num_layers()?];
    decoder(fields, QWEN3_5_MOE.family(), ffns, IMAGE_ROPE)
}

/// Experts, and one that all tokens share.
pub(super) fn experts(fields: &Fields) -> Result<MoeFfn, ConfigError> {
    Ok(MoeFfn {
        shared: Some(SharedExpert {
            width: fields.size("shared_expert_intermediate_size")?,
            gated: true,
        }),
        ..qwen3_moe::experts(fields)?
    })
}

#[cfg(test)]
mod tests;
