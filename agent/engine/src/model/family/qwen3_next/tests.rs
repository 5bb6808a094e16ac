//! Qwen3-Next's published configuration, beside what it describes.

use super::*;
use crate::model::config::{
    Attention, Ffn, GatedDelta, Glu, LayerConfig, Mixer, MoeFfn, Rope, RopeScaling, Scores,
    SharedExpert,
};
use crate::model::family::tests::{published, read, refusal};
use serde_json::json;

const NAME: &str = "qwen3-next-80b-a3b";

fn experts() -> MoeFfn {
    MoeFfn {
        num_experts: 512,
        top_k: 10,
        width: 512,
        scores: Scores::Softmax,
        groups: None,
        choice_bias: false,
        normalise: true,
        scale: 1.0,
        glu: Glu::Silu,
        biases: false,
        shared: Some(SharedExpert {
            width: 512,
            gated: true,
        }),
    }
}

#[test]
fn the_published_configuration_is_read() {
    let attention = Mixer::Attention(Attention {
        num_heads: 16,
        num_kv_heads: 2,
        head_dim: 256,
        scale: 0.0625,
        rope: 0,
        qk_norm: true,
        qkv_bias: false,
        window: None,
        gated: true,
        out_norm: false,
        o_bias: false,
        sinks: false,
    });
    let delta = Mixer::GatedDelta(GatedDelta {
        num_k_heads: 16,
        num_v_heads: 32,
        k_dim: 128,
        v_dim: 128,
        taps: 4,
    });
    let ffn = Ffn::Moe(experts());
    let layer = |mixer| LayerConfig { mixer, ffn };
    let [delta, attention] = [layer(delta), layer(attention)];
    let expected = ModelConfig {
        family: QWEN3_NEXT.family(),
        hidden_size: 2048,
        vocab_size: 151_936,
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
        layers: [delta, delta, delta, attention].repeat(12),
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(151_643),
        eos_token_ids: vec![151_645],
    };
    assert_eq!(read(&published(NAME)).unwrap(), expected);
}

#[test]
fn what_a_file_leaves_out_is_what_the_class_takes() {
    let expected = read(&published(NAME)).unwrap();
    let mut config = published(NAME);
    for key in [
        "full_attention_interval",
        "head_dim",
        "norm_topk_prob",
        "num_key_value_heads",
        "partial_rotary_factor",
    ] {
        config.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(read(&config).unwrap(), expected);
    config["norm_topk_prob"] = json!(false);
    let experts = Ffn::Moe(MoeFfn {
        normalise: false,
        ..experts()
    });
    let layers = read(&config).unwrap().layers;
    assert!(layers.iter().all(|layer| layer.ffn == experts));
}

#[test]
fn layers_without_experts_are_dense() {
    let mut config = published(NAME);
    config["mlp_only_layers"] = json!([0]);
    config["decoder_sparse_step"] = json!(2);
    let layers = read(&config).unwrap().layers;
    let is_dense =
        |layer: usize| matches!(layers[layer].ffn, Ffn::Dense(dense) if dense.width == 5120);
    assert_eq!([0, 1, 2, 3].map(is_dense), [true, false, true, false]);
}

#[test]
fn what_the_layers_do_not_compute_is_refused() {
    for (key, value, expected) in [
        ("attention_bias", json!(true), "attention_bias is true"),
        ("hidden_act", json!("gelu"), "hidden_act is gelu"),
        (
            "shared_expert_intermediate_size",
            json!(null),
            "shared_expert_intermediate_size is missing",
        ),
        (
            "linear_num_value_heads",
            json!(40),
            "a multiple of the 16 linear key heads",
        ),
        ("num_experts_per_tok", json!(513), "expected 1 to 512"),
    ] {
        let message = refusal(NAME, key, value);
        assert!(message.contains(expected), "{message}");
    }
}
