//! A published configuration of Qwen3 with experts, beside what it describes.

use super::*;
use crate::model::config::{DenseFfn, Glu, Rope, RopeScaling, Scores};
use crate::model::family::tests::{published, read, refusal};
use serde_json::json;

const NAME: &str = "qwen3-30b-a3b";

#[test]
fn the_published_configuration_is_read() {
    let attention = Attention {
        num_heads: 32,
        num_kv_heads: 4,
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
        ffn: Ffn::Moe(MoeFfn {
            num_experts: 128,
            top_k: 8,
            width: 768,
            scores: Scores::Softmax,
            groups: None,
            choice_bias: false,
            scale: 1.0,
            normalise: true,
            glu: Glu::Silu,
            biases: false,
            shared: None,
        }),
    };
    let expected = ModelConfig {
        family: QWEN3_MOE.family(),
        hidden_size: 2048,
        vocab_size: 151_936,
        context_len: 40_960,
        rms_norm_eps: 1e-6,
        norm_plus_one: false,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 1_000_000.0,
            scaling: RopeScaling::None,
        }],
        layers: vec![layer; 48],
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(151_643),
        eos_token_ids: vec![151_645],
    };
    assert_eq!(read(&published(NAME)).unwrap(), expected);
}

#[test]
fn experts_are_in_the_layers_that_the_keys_say() {
    let dense = Ffn::Dense(DenseFfn::silu(6144));
    let mut config = published(NAME);
    config["num_hidden_layers"] = json!(6);
    config["decoder_sparse_step"] = json!(2);
    config["mlp_only_layers"] = json!([3]);
    let layers = read(&config).unwrap().layers;
    let dense_layers: Vec<usize> = (0..6).filter(|i| layers[*i].ffn == dense).collect();
    assert_eq!(dense_layers, [0, 2, 3, 4]);
    config.as_object_mut().unwrap().remove("intermediate_size");
    let message = read(&config).unwrap_err().to_string();
    assert!(
        message.contains("intermediate_size is missing"),
        "{message}"
    );
}

#[test]
fn weights_stay_as_they_are_unless_the_file_says_that_they_are_divided() {
    let mut config = published(NAME);
    config.as_object_mut().unwrap().remove("norm_topk_prob");
    let layers = read(&config).unwrap().layers;
    assert!(matches!(
        layers[0].ffn,
        Ffn::Moe(MoeFfn {
            normalise: false,
            ..
        })
    ));
}

#[test]
fn a_window_that_is_used_is_that_of_every_layer() {
    let mut config = published(NAME);
    config["use_sliding_window"] = json!(true);
    config["sliding_window"] = json!(4096);
    let layers = read(&config).unwrap().layers;
    let window = |layer: &LayerConfig| match layer.mixer {
        Mixer::Attention(attention) => attention.window,
        other @ (Mixer::Mla(_) | Mixer::GatedDelta(_)) => panic!("no layer is {other:?}"),
    };
    assert!(layers.iter().all(|layer| window(layer) == Some(4096)));
}

#[test]
fn numbers_that_fit_no_model_are_refused_by_name() {
    for (key, value, expected) in [
        ("num_experts", json!(0), "number of experts is 0"),
        (
            "num_experts_per_tok",
            json!(129),
            "number of a token's experts is 129",
        ),
        ("moe_intermediate_size", json!(0), "size of an expert is 0"),
        (
            "decoder_sparse_step",
            json!(0),
            "decoder_sparse_step is 0, expected 1 or more",
        ),
        (
            "mlp_only_layers",
            json!([1.5]),
            "expected a list of whole numbers",
        ),
        (
            "num_local_experts",
            json!(64),
            "num_local_experts is 64, expected the num_experts 128",
        ),
        ("hidden_act", json!("gelu"), "hidden_act is gelu"),
    ] {
        let message = refusal(NAME, key, value);
        assert!(message.contains(expected), "{message}");
    }
    let mut config = published(NAME);
    let keys = config.as_object_mut().unwrap();
    let count = keys.remove("num_experts");
    let message = read(&config).unwrap_err().to_string();
    assert!(message.contains("num_experts is missing"), "{message}");
    config["num_local_experts"] = count.unwrap();
    assert_eq!(read(&config).unwrap(), read(&published(NAME)).unwrap());
}

#[test]
fn keys_of_the_coder_are_read_where_they_say_what_the_class_does() {
    let plain = read(&published(NAME)).unwrap();
    let mut config = published(NAME);
    config["use_qk_norm"] = json!(true);
    config["shared_expert_intermediate_size"] = json!(0);
    assert_eq!(read(&config).unwrap(), plain);
    for (key, value) in [
        ("use_qk_norm", json!(false)),
        ("shared_expert_intermediate_size", json!(512)),
    ] {
        let message = refusal(NAME, key, value);
        assert!(message.contains(key), "{message}");
    }
}
