//! A published configuration of Gemma 3, beside what it describes, and the forms that keys have.

use super::*;
use crate::model::config::{RopeScaling, gguf};
use crate::model::family::tests::{golden, published, read};
use crate::weights::Gguf;

const NAME: &str = "gemma-3-4b-it";

fn expected() -> ModelConfig {
    let attention = |rope, window| {
        Mixer::Attention(Attention {
            num_heads: 8,
            num_kv_heads: 4,
            head_dim: 256,
            scale: 0.0625,
            rope,
            qk_norm: true,
            qkv_bias: false,
            o_bias: false,
            sinks: false,
            window,
            gated: false,
            out_norm: true,
        })
    };
    let ffn = Ffn::Dense(DenseFfn {
        width: 10_240,
        glu: Glu::GeluTanh,
        out_norm: true,
    });
    let layer = |mixer| LayerConfig { mixer, ffn };
    let sliding = layer(attention(1, Some(1024)));
    let full = layer(attention(0, None));
    let rope = |theta, scaling| Rope {
        rotary_dim: 256,
        theta,
        scaling,
    };
    let six = [sliding, sliding, sliding, sliding, sliding, full];
    ModelConfig {
        family: GEMMA3.family(),
        hidden_size: 2560,
        vocab_size: 262_208,
        context_len: 131_072,
        rms_norm_eps: 1e-6,
        norm_plus_one: true,
        embed_scale: Some(50.596_443),
        final_softcap: None,
        ropes: vec![
            rope(1e6, RopeScaling::Linear { factor: 8.0 }),
            rope(1e4, RopeScaling::None),
        ],
        layers: six.into_iter().cycle().take(34).collect(),
        tie_word_embeddings: true,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(2),
        eos_token_ids: vec![1, 106],
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
    text["architectures"] = json!(["Gemma3ForCausalLM"]);
    text["eos_token_id"] = json!([1, 106]);
    assert_eq!(read(&text).unwrap(), expected());
}

#[test]
fn both_forms_of_rope_settings_are_read() {
    let types = json!({
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    });
    let newer = with(|text| {
        text["rope_scaling"] = Value::Null;
        text["rope_parameters"] = types.clone();
    });
    assert_eq!(read(&newer).unwrap(), expected());
    let older = with(|text| {
        text["rope_theta"] = json!(5e5);
        text["rope_local_base_freq"] = json!(500.0);
    });
    let ropes = read(&older).unwrap().ropes;
    assert_eq!(ropes[0].scaling, expected().ropes[0].scaling);
    assert_eq!([ropes[0].theta, ropes[1].theta], [5e5, 500.0]);
    // Both at once: one of them would be left out.
    let message = refusal("rope_parameters", types);
    assert!(
        message.contains("rope_parameters.full_attention is"),
        "{message}"
    );
}

#[test]
fn a_rotation_that_no_layer_uses_is_checked_too() {
    let config = with(|text| {
        text["layer_types"] = json!(vec!["full_attention"; 34]);
        text["rope_local_base_freq"] = json!(1e-300);
    });
    let message = read(&config).unwrap_err().to_string();
    assert!(message.contains("frequencies of rope is"), "{message}");
}

#[test]
fn layers_are_full_as_the_file_says() {
    let full = |config: &Value| -> Vec<usize> {
        let layers = read(config).unwrap().layers.into_iter().enumerate();
        let full = layers.filter(|(_, layer)| match layer.mixer {
            Mixer::Attention(attention) => attention.window.is_none(),
            other @ (Mixer::Mla(_) | Mixer::GatedDelta(_)) => panic!("no layer is {other:?}"),
        });
        full.map(|(index, _)| index).collect()
    };
    let mut config = with(|text| {
        text["num_hidden_layers"] = json!(4);
        text["sliding_window_pattern"] = json!(2);
    });
    assert_eq!(full(&config), [1, 3]);
    config["text_config"]["layer_types"] = json!([
        "full_attention",
        "sliding_attention",
        "full_attention",
        "sliding_attention"
    ]);
    assert_eq!(full(&config), [0, 2]);
}

#[test]
fn caps_and_scales_are_those_of_the_file() {
    let config = with(|text| {
        text["final_logit_softcapping"] = json!(30.0);
        text["query_pre_attn_scalar"] = json!(64);
    });
    let config = read(&config).unwrap();
    assert_eq!(config.final_softcap, Some(30.0));
    let Mixer::Attention(attention) = config.layers[0].mixer else {
        panic!("all layers attend");
    };
    assert_eq!(attention.scale, 0.125);
}

#[test]
fn what_the_layers_do_not_compute_is_refused() {
    for (key, value, expected) in [
        (
            "attn_logit_softcapping",
            json!(50.0),
            "attn_logit_softcapping is 50, which is not supported; supported: null",
        ),
        (
            "use_bidirectional_attention",
            json!(true),
            "use_bidirectional_attention is true",
        ),
        ("attention_bias", json!(true), "attention_bias is true"),
        (
            "hidden_activation",
            json!("gelu"),
            "hidden_activation is gelu",
        ),
        (
            "final_logit_softcapping",
            json!(-1.0),
            "cap of the logits is -1, expected a positive number",
        ),
        (
            "query_pre_attn_scalar",
            json!(0),
            "query_pre_attn_scalar is 0.0, expected a positive number",
        ),
        ("rope_type", json!("yarn"), "text_config.rope_type is"),
    ] {
        let message = refusal(key, value);
        assert!(message.contains(expected), "{message}");
    }
}

/// It names no token that ends a turn, but has one, and a key of a tower.
#[test]
fn a_gguf_file_ends_answers_at_the_end_of_a_turn() {
    let file = Gguf::open(&golden("tiny-gguf/gemma3-q8_0.gguf")).unwrap();
    let (config, _) = gguf::read_config(&file).unwrap();
    assert_eq!(config.eos_token_ids, [2, 3]);
    let windows = config.layers.iter().map(|layer| match layer.mixer {
        Mixer::Attention(attention) => attention.window,
        Mixer::Mla(_) | Mixer::GatedDelta(_) => None,
    });
    assert_eq!(
        windows.collect::<Vec<_>>(),
        [Some(24), Some(24), None, Some(24)]
    );
}
