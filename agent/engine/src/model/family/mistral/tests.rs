//! Mistral's published configuration, beside what it describes.

use super::*;
use crate::model::config::{Attention, DenseFfn, Ffn, LayerConfig, Mixer, Rope, RopeScaling};
use crate::model::family::tests::{published, read};
use serde_json::json;

#[test]
fn the_published_configuration_is_read() {
    let attention = Attention {
        num_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        scale: 0.088_388_346,
        rope: 0,
        qk_norm: false,
        qkv_bias: false,
        o_bias: false,
        sinks: false,
        window: None,
        gated: false,
        out_norm: false,
    };
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: Ffn::Dense(DenseFfn::silu(14_336)),
    };
    let expected = ModelConfig {
        family: MISTRAL.family(),
        hidden_size: 5120,
        vocab_size: 131_072,
        context_len: 128_000,
        rms_norm_eps: 1e-5,
        norm_plus_one: false,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 1_000_000.0,
            scaling: RopeScaling::None,
        }],
        layers: vec![layer; 40],
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(1),
        eos_token_ids: vec![2],
    };
    let mut config = published("Mistral-Nemo-Base-2407");
    assert_eq!(read(&config).unwrap(), expected);
    let window = |config: &serde_json::Value| -> Option<usize> {
        let config = read(config).unwrap();
        let Mixer::Attention(attention) = config.layers[0].mixer else {
            panic!("a mistral attends in all layers");
        };
        assert!(config.layers.iter().all(|layer| *layer == config.layers[0]));
        attention.window
    };
    config["sliding_window"] = json!(2048);
    assert_eq!(window(&config), Some(2048));
    config.as_object_mut().unwrap().remove("sliding_window");
    assert_eq!(window(&config), Some(4096), "where the key is absent");
}
