//! Qwen3 with experts: attention of qwen3, and a mixture of experts in the place of most
//! feed-forwards. GGUF files of it have experts in all layers.

use super::def::{FP8, FamilyDef, GgufFamily};
use super::qwen3;
use crate::model::config::fields::Fields;
use crate::model::config::{
    Attention, ConfigError, Ffn, LayerConfig, Mixer, ModelConfig, MoeFfn, invalid,
};
use crate::weights::names;
use serde_json::json;

pub(super) static QWEN3_MOE: FamilyDef = FamilyDef {
    model_types: &["qwen3_moe"],
    architectures: &["Qwen3MoeForCausalLM"],
    // Its class reads no `max_window_layers`, and `intermediate_size` is that of dense layers.
    neutral: &[
        "intermediate_size",
        "max_window_layers",
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    towers: None,
    quant_method: FP8,
    absent: || {
        vec![
            ("num_key_value_heads", json!(4)),
            ("sliding_window", json!(4096)),
        ]
    },
    config,
    hf_names: names::hf,
    drafts: None,
    gguf: Some(GgufFamily {
        architecture: "qwen3moe",
        config: |keys| keys.moe_decoder(qwen3::adapt),
        names: names::gguf,
        towers: &[],
        permuted_qk: false,
    }),
};

fn config(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let family = QWEN3_MOE.family();
    fields.expect_off("attention_bias")?;
    // Keys of Qwen3-Coder, which say what its class does anyway.
    if fields.flag("use_qk_norm")? == Some(false) {
        return Err(fields.unsupported("use_qk_norm", "false", "true"));
    }
    if let Some(width @ 1..) = fields.size_opt("shared_expert_intermediate_size")? {
        let width = width.to_string();
        return Err(fields.unsupported("shared_expert_intermediate_size", &width, "0"));
    }
    let attention = fields.attention()?;
    let is_windowed = fields.flag("use_sliding_window")?.unwrap_or(false);
    let window = fields.sliding_window()?;
    let attention = Attention {
        window: window.filter(|_| is_windowed),
        ..qwen3::adapt(attention)
    };
    let rope = fields.rope(family, attention.head_dim)?;
    let layer = |ffn| LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn,
    };
    let layers = ffns(fields, experts(fields)?)?.into_iter().map(layer);
    fields.model(family, vec![rope], layers.collect())
}

/// Experts in the layers of every `decoder_sparse_step`, but for `mlp_only_layers`.
pub(super) fn ffns(fields: &Fields, experts: MoeFfn) -> Result<Vec<Ffn>, ConfigError> {
    const STEP: &str = "decoder_sparse_step";
    let dense_layers = fields.sizes("mlp_only_layers")?;
    let step = fields.size_opt(STEP)?.unwrap_or(1);
    if step == 0 {
        let expected = "1 or more".to_owned();
        return Err(invalid(fields.file(), STEP, step, expected));
    }
    let ffn = |layer: usize| {
        if (layer + 1).is_multiple_of(step) && !dense_layers.contains(&layer) {
            Ok(Ffn::Moe(experts))
        } else {
            fields.dense_ffn()
        }
    };
    (0..fields.num_layers()?).map(ffn).collect()
}

/// The experts of a layer. What they weigh is divided by its sum if a key says so.
pub(super) fn experts(fields: &Fields) -> Result<MoeFfn, ConfigError> {
    const COUNT: &str = "num_experts";
    // The newer name of the same number.
    const ALIAS: &str = "num_local_experts";
    fields.expect_text("hidden_act", "silu")?;
    let count = match (fields.size_opt(COUNT)?, fields.size_opt(ALIAS)?) {
        (Some(count), Some(alias)) if count != alias => {
            let expected = format!("the {COUNT} {count}");
            return Err(invalid(fields.file(), ALIAS, alias, expected));
        }
        (count, alias) => count.or(alias).ok_or_else(|| fields.missing(COUNT))?,
    };
    Ok(MoeFfn {
        normalise: fields.flag("norm_topk_prob")?.unwrap_or(false),
        ..MoeFfn::softmax(
            count,
            fields.size("num_experts_per_tok")?,
            fields.size("moe_intermediate_size")?,
        )
    })
}

#[cfg(test)]
mod tests;
