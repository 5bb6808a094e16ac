//! gpt-oss' published configuration, beside what it describes.

use super::*;
use crate::model::config::{Rope, RopeScaling};
use crate::model::family::tests::{published, read, refusal};

const NAME: &str = "gpt-oss-20b";

fn expected() -> ModelConfig {
    let attention = |window| {
        Mixer::Attention(Attention {
            num_heads: 64,
            num_kv_heads: 8,
            head_dim: 64,
            scale: 0.125,
            rope: 0,
            qk_norm: false,
            qkv_bias: true,
            o_bias: true,
            sinks: true,
            window,
            gated: false,
            out_norm: false,
        })
    };
    let ffn = Ffn::Moe(MoeFfn {
        num_experts: 32,
        top_k: 4,
        width: 2880,
        scores: Scores::SoftmaxOfChosen,
        groups: None,
        choice_bias: false,
        scale: 1.0,
        normalise: false,
        glu: Glu::ClampedSilu {
            alpha: 1.702,
            limit: 7.0,
        },
        biases: true,
        shared: None,
    });
    let layer = |window| LayerConfig {
        mixer: attention(window),
        ffn,
    };
    ModelConfig {
        family: GPT_OSS.family(),
        hidden_size: 2880,
        vocab_size: 201_088,
        context_len: 131_072,
        rms_norm_eps: 1e-5,
        norm_plus_one: false,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 64,
            theta: 150_000.0,
            scaling: RopeScaling::Yarn {
                factor: 32.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                original_context_len: 4096.0,
                truncate: false,
                attention_factor: 1.346_573_6,
            },
        }],
        layers: [layer(Some(128)), layer(None)].repeat(12),
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: None,
        eos_token_ids: vec![200_002],
    }
}

#[test]
fn the_published_configuration_is_read() {
    assert_eq!(read(&published(NAME)).unwrap(), expected());
}

#[test]
fn a_file_that_leaves_out_what_its_class_has_says_the_same() {
    let mut config = published(NAME);
    for key in [
        "attention_bias",
        "head_dim",
        "layer_types",
        "rope_scaling",
        "rope_theta",
        "sliding_window",
        "swiglu_limit",
        "quantization_config",
    ] {
        config.as_object_mut().unwrap().remove(key).unwrap();
    }
    assert_eq!(read(&config).unwrap(), expected());
}

#[test]
fn what_the_layers_do_not_compute_is_refused() {
    for (key, value, expected) in [
        ("hidden_act", json!("gelu"), "hidden_act is gelu"),
        (
            "swiglu_limit",
            json!(0),
            "swiglu_limit is 0.0, expected a positive number",
        ),
        (
            "quantization_config",
            json!({"quant_method": "fp8"}),
            "quantization_config.quant_method is fp8, which is not supported; supported: mxfp4",
        ),
        (
            "quantization_config",
            json!({"quant_method": "mxfp4", "group_size": 16}),
            "quantization_config.group_size is 16, a key that gpt_oss",
        ),
        (
            "layer_types",
            json!(vec!["linear_attention"; 24]),
            "linear_attention",
        ),
        (
            "num_local_experts",
            Value::Null,
            "num_local_experts is missing",
        ),
    ] {
        let message = refusal(NAME, key, value);
        assert!(message.contains(expected), "{message}");
    }
}
