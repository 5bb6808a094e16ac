//! Qwen3.5's published configuration, beside what it describes.

use super::*;
use crate::model::config::{DenseFfn, Ffn, Rope, RopeScaling};
use crate::model::family::tests::{published, read};
use serde_json::{Value, json};

const NAME: &str = "qwen3.5-27b";

fn expected() -> ModelConfig {
    let attention = Mixer::Attention(Attention {
        num_heads: 24,
        num_kv_heads: 4,
        head_dim: 256,
        scale: 0.0625,
        rope: 0,
        qk_norm: true,
        qkv_bias: false,
        o_bias: false,
        sinks: false,
        window: None,
        gated: true,
        out_norm: false,
    });
    let delta = Mixer::GatedDelta(GatedDelta {
        num_k_heads: 16,
        num_v_heads: 48,
        k_dim: 128,
        v_dim: 128,
        taps: 4,
    });
    let ffn = Ffn::Dense(DenseFfn::silu(17_408));
    let layer = |mixer| LayerConfig { mixer, ffn };
    let [delta, attention] = [layer(delta), layer(attention)];
    ModelConfig {
        family: QWEN3_5.family(),
        hidden_size: 5120,
        vocab_size: 248_320,
        context_len: 262_144,
        rms_norm_eps: 1e-6,
        norm_plus_one: true,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 64,
            theta: 1e7,
            scaling: RopeScaling::None,
        }],
        layers: [delta, delta, delta, attention].repeat(16),
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: None,
        eos_token_ids: vec![248_044],
    }
}

/// The published file with a change to the decoder's keys.
fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut config = published(NAME);
    change(&mut config["text_config"]);
    config
}

fn refusal(key: &str, value: Value) -> String {
    let config = with(|text| text[key] = value);
    read(&config).unwrap_err().to_string()
}

#[test]
fn the_published_configuration_is_read() {
    assert_eq!(read(&published(NAME)).unwrap(), expected());
}

#[test]
fn a_file_of_the_decoder_alone_says_the_same() {
    let mut text = published(NAME)["text_config"].clone();
    text["architectures"] = json!(["Qwen3_5ForCausalLM"]);
    assert_eq!(read(&text).unwrap(), expected());
}

#[test]
fn the_decoders_own_word_on_tying_counts_before_the_outer_one() {
    let mut config = published(NAME);
    config["tie_word_embeddings"] = json!(true);
    assert!(read(&config).unwrap().tie_word_embeddings);
    config["text_config"]["tie_word_embeddings"] = json!(false);
    assert!(
        !read(&config).unwrap().tie_word_embeddings,
        "the decoder's own key counts"
    );
}

#[test]
fn every_fourth_layer_attends_where_the_file_says_nothing() {
    let without = |interval: Option<Value>| {
        with(|text| {
            text["layer_types"] = Value::Null;
            let keys = text.as_object_mut().unwrap();
            keys.remove("full_attention_interval");
            keys.extend(interval.map(|interval| ("full_attention_interval".to_owned(), interval)));
        })
    };
    assert_eq!(read(&without(Some(json!(4)))).unwrap(), expected());
    assert_eq!(read(&without(None)).unwrap(), expected());
    let halves = read(&without(Some(json!(2)))).unwrap();
    let [delta, attention] = [expected().layers[0], expected().layers[3]];
    assert_eq!(halves.layers, [delta, attention].repeat(32));
    for (interval, expected) in [
        (
            0,
            "interval of layers of full attention is 0, expected 1 or more",
        ),
        (100, "expected at least one layer of attention"),
    ] {
        let message = read(&without(Some(json!(interval))))
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn what_the_layers_do_not_compute_is_refused() {
    for (key, value, expected) in [
        (
            "attention_bias",
            json!(true),
            "text_config.attention_bias is true",
        ),
        (
            "attn_output_gate",
            json!(false),
            "text_config.attn_output_gate is false",
        ),
        (
            "mamba_ssm_dtype",
            json!("bfloat16"),
            "mamba_ssm_dtype is bfloat16",
        ),
        ("hidden_act", json!("gelu"), "hidden_act is gelu"),
        (
            "linear_conv_kernel_dim",
            json!(1),
            "convolution size is 1, expected 2 to",
        ),
        (
            "linear_num_value_heads",
            json!(40),
            "a multiple of the 16 linear key heads",
        ),
        (
            "linear_num_key_heads",
            Value::Null,
            "linear_num_key_heads is missing",
        ),
        (
            "model_type",
            json!("qwen3"),
            "text_config.model_type is \"qwen3\"",
        ),
        (
            "logit_scale",
            json!(2),
            "text_config.logit_scale is 2, a key that qwen3_5",
        ),
        (
            "layer_types",
            json!(vec!["sliding_attention"; 64]),
            "sliding_attention",
        ),
    ] {
        let message = refusal(key, value);
        assert!(message.contains(expected), "{message}");
    }
    let message = {
        let config = with(|text| text["rope_parameters"]["partial_rotary_factor"] = json!(1.5));
        read(&config).unwrap_err().to_string()
    };
    assert!(
        message.contains("partial_rotary_factor is 1.5, expected 0 to 1"),
        "{message}"
    );
}
