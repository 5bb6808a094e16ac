//! DeepSeek V3's published configuration, beside what it describes.

use super::*;
use crate::model::config::{DenseFfn, Glu, Rope, RopeScaling};
use crate::model::family::tests::{published, read, refusal};
use crate::weights::Fp8;
use serde_json::{Value, json};
use std::num::NonZero;

const NAME: &str = "deepseek-v3";

fn expected() -> ModelConfig {
    let mixer = Mixer::Mla(Mla {
        num_heads: 128,
        q_lora_rank: Some(1536),
        kv_lora_rank: 512,
        nope_dim: 128,
        rope_dim: 64,
        v_dim: 128,
        // 192^-½ · (0.1 · ln 40 + 1)².
        scale: 0.135_233_77,
        rope: 0,
        rope_interleaved: true,
    });
    let dense = Ffn::Dense(DenseFfn::silu(18_432));
    let experts = Ffn::Moe(MoeFfn {
        num_experts: 256,
        top_k: 8,
        width: 2048,
        scores: Scores::Sigmoid,
        groups: Some(ExpertGroups {
            count: 8,
            chosen: 4,
            score: GroupScore::SumOfTwoBest,
        }),
        choice_bias: true,
        normalise: true,
        scale: 2.5,
        glu: Glu::Silu,
        biases: false,
        shared: Some(SharedExpert {
            width: 2048,
            gated: false,
        }),
    });
    let layers = |ffn, count| vec![LayerConfig { mixer, ffn }; count];
    ModelConfig {
        family: DEEPSEEK_V3.family(),
        hidden_size: 7168,
        vocab_size: 129_280,
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
        layers: [layers(dense, 3), layers(experts, 58)].concat(),
        tie_word_embeddings: false,
        draft_layer: None,
        fp8: Some(Fp8::Blocks([NonZero::new(128).unwrap(); 2])),
        bos_token_id: Some(0),
        eos_token_ids: vec![1],
    }
}

/// The mixer of a model, which all layers have in common.
fn mla_of(config: &Value) -> Mla {
    match read(config).unwrap().layers[0].mixer {
        Mixer::Mla(mla) => mla,
        other @ (Mixer::Attention(_) | Mixer::GatedDelta(_)) => panic!("{other:?}"),
    }
}

#[test]
fn the_published_configuration_is_read() {
    assert_eq!(read(&published(NAME)).unwrap(), expected());
}

#[test]
fn what_a_file_leaves_out_is_what_the_class_takes() {
    let mut config = published(NAME);
    for (key, _) in (DEEPSEEK_V3.absent)() {
        config.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(read(&config).unwrap(), expected());
}

#[test]
fn queries_may_be_made_at_once_and_their_scores_as_large_as_elsewhere() {
    let mut config = published(NAME);
    config["q_lora_rank"] = Value::Null;
    config["rope_interleave"] = json!(false);
    config["rope_scaling"]["mscale_all_dim"].take();
    let mla = mla_of(&config);
    assert_eq!((mla.q_lora_rank, mla.rope_interleaved), (None, false));
    assert_eq!(mla.scale, narrow(192f64.powf(-0.5)));
    config["rope_scaling"] = Value::Null;
    assert_eq!(mla_of(&config).scale, narrow(192f64.powf(-0.5)));
}

#[test]
fn one_group_of_all_experts_is_none() {
    let mut config = published(NAME);
    config["n_group"] = json!(1);
    config["topk_group"] = json!(1);
    let layers = read(&config).unwrap().layers;
    assert!(matches!(
        layers[3].ffn,
        Ffn::Moe(MoeFfn { groups: None, .. })
    ));
}

#[test]
fn what_the_layers_do_not_compute_is_refused() {
    for (key, value, expected) in [
        ("attention_bias", json!(true), "attention_bias is true"),
        ("hidden_act", json!("gelu"), "hidden_act is gelu"),
        ("scoring_func", json!("softmax"), "scoring_func is softmax"),
        ("topk_method", json!("greedy"), "topk_method is greedy"),
        ("moe_layer_freq", json!(2), "moe_layer_freq is 2"),
        (
            "num_key_value_heads",
            json!(8),
            "num_key_value_heads is 8, expected the num_attention_heads 128",
        ),
        ("head_dim", json!(128), "expected the qk_rope_head_dim 64"),
        (
            "qk_head_dim",
            json!(64),
            "expected the sum of the parts of a head, 192",
        ),
        (
            "qk_rope_head_dim",
            json!(63),
            "expected an even number up to 63",
        ),
        ("kv_lora_rank", json!(0), "kv_lora_rank is 0, expected 1 to"),
        (
            "n_group",
            json!(7),
            "number of groups of experts is 7, expected equal groups of 2 or more of the 256",
        ),
        (
            "n_group",
            json!(256),
            "expected equal groups of 2 or more of the 256 experts",
        ),
        (
            "topk_group",
            json!(9),
            "number of a token's groups of experts is 9, expected 1 to 8",
        ),
        (
            "num_experts_per_tok",
            json!(129),
            "number of a token's experts is 129, expected 1 to 128",
        ),
        ("kv_lora_rank", Value::Null, "kv_lora_rank is missing"),
        (
            "quantization_config",
            json!({"quant_method": "awq"}),
            "quantization_config.quant_method is awq",
        ),
    ] {
        let message = refusal(NAME, key, value);
        assert!(message.contains(expected), "{message}");
    }
}
