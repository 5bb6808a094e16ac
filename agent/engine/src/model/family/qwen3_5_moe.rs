//! Qwen3.5 with experts: the layers of qwen3_5, with a mixture of experts and one that all tokens share in the
//! place of the feed-forward.

use super::def::FamilyDef;
use super::qwen3_5::{self, TOWERS, decoder};
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
    // Draft layers are not read.
    neutral: &[
        "mtp_num_hidden_layers",
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    towers: Some(TOWERS),
    quant_method: None,
    absent: qwen3_5::absent,
    config,
    hf_names: names::hf,
    gguf: None,
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let ffn = Ffn::Moe(MoeFfn {
        normalise: true,
        shared: Some(SharedExpert {
            width: fields.size("shared_expert_intermediate_size")?,
        }),
        ..qwen3_moe::experts(fields)?
    });
    decoder(fields, QWEN3_5_MOE.family(), ffn)
}

#[cfg(test)]
mod tests;
