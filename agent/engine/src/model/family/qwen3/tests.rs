//! Qwen3's published configuration, beside what it describes.

use super::*;
use crate::model::config::{Attention, DenseFfn, Ffn, LayerConfig, Mixer, Rope, RopeScaling};
use crate::model::family::tests::{published, read, refusal};
use serde_json::{Value, json};

#[test]
fn the_published_configuration_is_read() {
    let attention = Attention {
        num_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        scale: 0.088_388_346,
        rope: 0,
        qk_norm: true,
        qkv_bias: false,
        o_bias: false,
        sinks: false,
        window: None,
        gated: false,
        out_norm: false,
    };
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: Ffn::Dense(DenseFfn::silu(9728)),
    };
    let expected = ModelConfig {
        family: QWEN3.family(),
        hidden_size: 2560,
        vocab_size: 151_936,
        context_len: 262_144,
        rms_norm_eps: 1e-6,
        norm_plus_one: false,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 5_000_000.0,
            scaling: RopeScaling::None,
        }],
        layers: vec![layer; 36],
        tie_word_embeddings: true,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(151_643),
        eos_token_ids: vec![151_645],
    };
    let config = published("Qwen3-4B-Instruct-2507");
    assert_eq!(read(&config).unwrap(), expected);
    let mut without = config;
    without.as_object_mut().unwrap().remove("head_dim");
    assert_eq!(read(&without).unwrap(), expected, "128 is the family's own");
}

#[test]
fn layers_have_windows_by_their_types_or_from_one_on() {
    let name = "Qwen3-4B-Instruct-2507";
    let mut config = published(name);
    config["use_sliding_window"] = json!(true);
    config["sliding_window"] = json!(4096);
    let windowed = |config: &Value| -> Vec<usize> {
        let layers = read(config).unwrap().layers.into_iter().enumerate();
        let windowed = layers.filter(|(_, layer)| {
            let Mixer::Attention(attention) = layer.mixer else {
                panic!("a qwen3 attends in all layers");
            };
            assert!(matches!(attention.window, None | Some(4096)));
            attention.window.is_some()
        });
        windowed.map(|(index, _)| index).collect()
    };
    assert!(
        windowed(&config).is_empty(),
        "from layer 36 on, and there are no more"
    );
    config["max_window_layers"] = json!(30);
    assert_eq!(windowed(&config), [30, 31, 32, 33, 34, 35]);
    config["sliding_window"] = json!(262_144);
    assert!(
        windowed(&config).is_empty(),
        "a window as long as the context hides nothing"
    );
    config["sliding_window"] = json!(4096);
    let mut types = vec!["full_attention"; 36];
    config["layer_types"] = json!(types);
    assert!(
        windowed(&config).is_empty(),
        "types count before max_window_layers"
    );
    types[30] = "sliding_attention";
    config["layer_types"] = json!(types);
    assert_eq!(windowed(&config), [30]);
    types[30] = "chunked_attention";
    let message = refusal(name, "layer_types", json!(types));
    assert!(
        message.contains("layer_types is chunked_attention"),
        "{message}"
    );
    let message = refusal(name, "layer_types", json!(types[1..]));
    assert!(message.contains("a list of 36 strings"), "{message}");
}
