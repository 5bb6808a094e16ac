//! DeepSeek V2 Lite's published configuration, beside what it describes.

use super::*;
use crate::model::config::{
    DenseFfn, ExpertGroups, Ffn, Glu, LayerConfig, Mixer, Mla, Rope, RopeScaling, Scores,
    SharedExpert,
};
use crate::model::family::tests::{published, read, refusal};
use serde_json::json;

const NAME: &str = "deepseek-v2-lite";

fn expected() -> ModelConfig {
    let mixer = Mixer::Mla(Mla {
        num_heads: 16,
        q_lora_rank: None,
        kv_lora_rank: 512,
        nope_dim: 128,
        rope_dim: 64,
        v_dim: 128,
        // 192^-½ · (0.0707 · ln 40 + 1)².
        scale: 0.114_721_39,
        rope: 0,
        rope_interleaved: true,
    });
    let dense = Ffn::Dense(DenseFfn::silu(10_944));
    let experts = Ffn::Moe(MoeFfn {
        num_experts: 64,
        top_k: 6,
        width: 1408,
        scores: Scores::Softmax,
        groups: None,
        choice_bias: false,
        normalise: false,
        scale: 1.0,
        glu: Glu::Silu,
        biases: false,
        shared: Some(SharedExpert {
            width: 2816,
            gated: false,
        }),
    });
    let layers = |ffn, count| vec![LayerConfig { mixer, ffn }; count];
    ModelConfig {
        family: DEEPSEEK_V2.family(),
        hidden_size: 2048,
        vocab_size: 102_400,
        context_len: 163_840,
        rms_norm_eps: 1e-6,
        norm_plus_one: false,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 64,
            theta: 10_000.0,
            scaling: RopeScaling::Yarn {
                factor: 40.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                original_context_len: 4096.0,
                truncate: true,
                attention_factor: 1.0,
            },
        }],
        layers: [layers(dense, 1), layers(experts, 26)].concat(),
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(100_000),
        eos_token_ids: vec![100_001],
    }
}

#[test]
fn the_published_configuration_is_read() {
    assert_eq!(read(&published(NAME)).unwrap(), expected());
}

#[test]
fn experts_may_be_those_of_the_best_groups() {
    let mut config = published(NAME);
    config["topk_method"] = json!("group_limited_greedy");
    config["n_group"] = json!(8);
    config["topk_group"] = json!(3);
    let Ffn::Moe(experts) = read(&config).unwrap().layers[1].ffn else {
        panic!("a layer of experts");
    };
    let expected = ExpertGroups {
        count: 8,
        chosen: 3,
        score: GroupScore::Best,
    };
    assert_eq!(experts.groups, Some(expected));
}

#[test]
fn what_the_layers_do_not_compute_is_refused() {
    for (key, value, expected) in [
        ("mlp_bias", json!(true), "mlp_bias is true"),
        ("norm_topk_prob", json!(true), "norm_topk_prob is true"),
        ("scoring_func", json!("sigmoid"), "scoring_func is sigmoid"),
        (
            "topk_method",
            json!("noaux_tc"),
            "topk_method is noaux_tc, which is not supported; supported: greedy, \
             group_limited_greedy",
        ),
    ] {
        let message = refusal(NAME, key, value);
        assert!(message.contains(expected), "{message}");
    }
}
