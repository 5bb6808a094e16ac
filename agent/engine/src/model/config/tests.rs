//! What a configuration may say, and how a refusal reads.

use super::fields::Fields;
use super::hf::build_config;
use super::*;
use crate::weights::Fp8;
use serde_json::{Value, json};
use std::num::NonZero;

fn llama() -> Value {
    json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 384, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "eos_token_id": 2, "tie_word_embeddings": true,
    })
}

fn with(key: &str, value: Value) -> Result<ModelConfig, ConfigError> {
    let mut object = llama();
    object[key] = value;
    read(object)
}

fn read(object: Value) -> Result<ModelConfig, ConfigError> {
    let Value::Object(map) = object else {
        panic!("a config is an object");
    };
    let read = build_config(&Fields::new("m/config.json".to_owned(), map), None)?;
    Ok(read.0)
}

fn refusal(key: &str, value: Value) -> String {
    with(key, value).expect_err("must be refused").to_string()
}

#[test]
fn head_dim_defaults_to_hidden_over_heads() {
    let head_dim = |value| match with("head_dim", value).unwrap().layers[1].mixer {
        Mixer::Attention(attention) => (attention.head_dim, attention.scale),
        other @ (Mixer::Mla(_) | Mixer::GatedDelta(_)) => panic!("a llama has no {other:?}"),
    };
    assert_eq!(head_dim(Value::Null), (16, 0.25));
    assert_eq!(head_dim(json!(64)), (64, 0.125));
}

#[test]
fn end_tokens_of_both_files_are_joined() {
    let fields = |value: Value| Fields::new("f".to_owned(), value.as_object().unwrap().clone());
    let generation = fields(json!({"eos_token_id": [2, 7, 9]}));
    let (config, _) = build_config(&fields(llama()), Some(&generation)).unwrap();
    assert_eq!(config.eos_token_ids, [2, 7, 9]);
}

#[test]
fn sampling_defaults_are_those_that_the_file_sets() {
    let folder = tempfile::tempdir().unwrap();
    let read = || hf::read_sampling_defaults(folder.path());
    assert_eq!(read().unwrap(), SamplingDefaults::default());
    let write = |generation: Value| {
        let path = folder.path().join("generation_config.json");
        std::fs::write(path, generation.to_string()).unwrap();
    };
    write(json!({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": true}));
    let expected = SamplingDefaults {
        temperature: Some(0.6),
        top_p: Some(0.95),
        top_k: Some(20),
        ..SamplingDefaults::default()
    };
    assert_eq!(read().unwrap(), expected);
    write(json!({"top_k": 0, "min_p": 0.1, "repetition_penalty": 1.1}));
    let expected = SamplingDefaults {
        min_p: Some(0.1),
        repetition_penalty: Some(1.1),
        ..SamplingDefaults::default()
    };
    assert_eq!(read().unwrap(), expected);
    for (key, value) in [
        ("temperature", -1.0),
        ("top_p", 0.0),
        ("repetition_penalty", 3.0),
    ] {
        write(json!({ key: value }));
        let refused = read().unwrap_err().to_string();
        assert!(
            refused.contains(&format!("{key} is {value:?}, expected ")),
            "{refused}"
        );
    }
}

#[test]
fn both_forms_of_rope_settings_are_read() {
    let old = with("rope_scaling", json!({"type": "linear", "factor": 2.0})).unwrap();
    assert_eq!(old.ropes[0].theta, 5000.0);
    assert_eq!(old.ropes[0].scaling, RopeScaling::Linear { factor: 2.0 });
    let new = with(
        "rope_parameters",
        json!({"rope_type": "llama3", "rope_theta": 7.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    )
    .unwrap();
    assert_eq!(new.ropes[0].theta, 7.0);
    assert!(matches!(new.ropes[0].scaling, RopeScaling::Llama3 { factor, .. } if factor == 8.0));
}

#[test]
fn what_yarn_leaves_out_follows_from_the_context() {
    let scaling = |parameters: Value| match with("rope_scaling", parameters).unwrap().ropes[0]
        .scaling
    {
        RopeScaling::Yarn {
            factor,
            original_context_len,
            attention_factor,
            truncate,
            ..
        } => (factor, original_context_len, attention_factor, truncate),
        other @ (RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. }) => {
            panic!("{other:?}")
        }
    };
    let yarn = json!({"type": "yarn", "factor": 4.0});
    assert_eq!(scaling(yarn), (4.0, 4096.0, 1.138_629_4, true));
    let yarn =
        json!({"rope_type": "yarn", "original_max_position_embeddings": 1024, "truncate": false});
    assert_eq!(scaling(yarn), (4.0, 1024.0, 1.138_629_4, false));
    let yarn = json!({"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707});
    assert_eq!(scaling(yarn).2, 1.085_726_4);
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5});
    assert_eq!(scaling(yarn).2, 1.5);
    let mut both = llama();
    both["original_max_position_embeddings"] = json!(512);
    both["rope_scaling"] = json!({"rope_type": "yarn", "original_max_position_embeddings": 1024});
    let Rope { scaling, .. } = read(both).unwrap().ropes[0];
    assert!(matches!(
        scaling,
        RopeScaling::Yarn {
            factor: 8.0,
            original_context_len: 512.0,
            ..
        }
    ));
}

#[test]
fn a_refusal_names_file_key_value_and_what_is_supported() {
    assert_eq!(
        refusal("model_type", json!("mamba2")),
        "m/config.json: model_type is \"mamba2\", which is not supported; supported: \
         deepseek_v2, deepseek_v3, gemma3, gemma3_text, gpt_oss, llama, mistral, qwen2, qwen3, qwen3_5, \
         qwen3_5_text, qwen3_5_moe, qwen3_5_moe_text, qwen3_moe, qwen3_next"
    );
    assert_eq!(
        refusal(
            "rope_scaling",
            json!({"rope_type": "dynamic", "factor": 2.0})
        ),
        "m/config.json: rope_scaling.rope_type is dynamic, which is not supported; \
         supported: default, linear, llama3, yarn"
    );
    assert_eq!(
        refusal("hidden_size", json!("64")),
        "m/config.json: hidden_size is \"64\", expected a whole number"
    );
    assert_eq!(
        refusal("vocab_size", Value::Null),
        "m/config.json: vocab_size is missing; the model cannot be built without it"
    );
}

/// Of SmolLM2, of tools, and of what transformers writes when it writes all.
#[test]
fn notes_and_settings_of_generation_change_nothing() {
    let plain = read(llama()).unwrap();
    for (key, value) in [
        ("is_llama_config", json!(true)),
        ("rope_interleaved", json!(false)),
        ("transformers.js_config", json!({"dtype": "q4"})),
        ("pretraining_tp", json!(2)),
        ("unsloth_version", json!("2025.1.5")),
        ("return_dict", json!(true)),
        ("chunk_size_feed_forward", json!(0)),
        ("id2label", json!({"0": "LABEL_0"})),
        ("num_beams", json!(1)),
        ("is_encoder_decoder", json!(false)),
        ("pruned_heads", json!({})),
    ] {
        assert_eq!(with(key, value).unwrap(), plain, "{key}");
    }
}

#[test]
fn matrices_of_e4m3_are_described_by_their_blocks() {
    let fp8 = |rest: Value| {
        let mut config = json!({"quant_method": "fp8"});
        config
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        with("quantization_config", config).map(|config| config.fp8)
    };
    let published = json!({
        "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 64],
        "modules_to_not_convert": ["lm_head"], "scale_fmt": "ue8m0", "dequantize": false,
    });
    let len = |len| NonZero::new(len).unwrap();
    assert_eq!(
        fp8(published).unwrap(),
        Some(Fp8::Blocks([len(128), len(64)]))
    );
    let whole = json!({"activation_scheme": "static", "ignored_layers": ["lm_head"]});
    assert_eq!(fp8(whole).unwrap(), Some(Fp8::WholeMatrix));
    assert_eq!(
        fp8(json!({"weight_block_size": null})).unwrap(),
        Some(Fp8::WholeMatrix)
    );
    for (rest, expected) in [
        (
            json!({"weight_block_size": [128]}),
            "weight_block_size is [128], expected the rows and columns",
        ),
        (
            json!({"weight_block_size": [128, 0]}),
            "weight_block_size is [128,0], expected the rows",
        ),
        (
            json!({"fmt": "e5m2"}),
            "quantization_config.fmt is e5m2, which is not supported",
        ),
        (
            json!({"scale_fmt": "int8"}),
            "quantization_config.scale_fmt is int8",
        ),
        (
            json!({"weight_bits": 8}),
            "quantization_config.weight_bits is 8, a key that llama",
        ),
    ] {
        let message = fp8(rest).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let message = refusal("quantization_config", json!({"bits": 4}));
    assert!(
        message.contains("quantization_config.quant_method is missing"),
        "{message}"
    );
}

#[test]
fn networks_that_would_run_wrongly_are_refused() {
    for (key, value) in [
        ("attention_bias", json!(true)),
        ("mlp_bias", json!(true)),
        ("is_encoder_decoder", json!(true)),
        ("pruned_heads", json!({"0": [1]})),
        ("hidden_act", json!("gelu")),
        ("architectures", json!(["LlamaForSequenceClassification"])),
        ("quantization_config", json!({"quant_method": "gptq"})),
        ("num_key_value_heads", json!(3)),
        ("num_key_value_heads", json!(0)),
        ("num_hidden_layers", json!(0)),
        ("num_hidden_layers", json!(-1)),
        (
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
        ),
        ("head_dim", json!(15)),
        ("rms_norm_eps", json!(-1.0)),
        ("rope_theta", json!(0.0)),
        ("rope_theta", json!(1e-300)),
        (
            "rope_scaling",
            json!({"rope_type": "linear", "factor": 1e-300}),
        ),
        ("eos_token_id", json!(384)),
        ("hidden_size", json!(1u64 << 40)),
    ] {
        let message = refusal(key, value.clone());
        assert!(
            message.starts_with("m/config.json: "),
            "{key}={value}: {message}"
        );
    }
}
