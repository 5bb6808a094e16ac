//! The table as a whole, and published configurations of each family beside what they describe.

use super::*;
use crate::model::config::hf::read_config;
use crate::model::config::{Attention, DenseFfn, Ffn, LayerConfig, Mixer, Rope, RopeScaling, gguf};
use crate::weights::Gguf;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

/// Published configurations, one of each family.
const PUBLISHED: [&str; 3] = [
    "Llama-3.1-8B",
    "Qwen2-7B-Instruct",
    "Qwen3-4B-Instruct-2507",
];

fn published(name: &str) -> Value {
    let text = std::fs::read(golden("configs").join(format!("{name}.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn read(config: &Value) -> Result<ModelConfig, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    read_config(folder.path())
}

fn refusal(name: &str, key: &str, value: Value) -> String {
    let mut config = published(name);
    config[key] = value;
    read(&config).unwrap_err().to_string()
}

#[test]
fn no_two_families_answer_to_one_name() {
    let mut types = Family::model_types();
    types.sort_unstable();
    let mut distinct = types.clone();
    distinct.dedup();
    assert_eq!(types, distinct);
    assert_eq!(types.len(), PUBLISHED.len(), "each has its published file");
}

#[test]
fn llama_is_read() {
    let attention = Attention {
        num_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        scale: 0.088_388_346,
        rope: 0,
        qk_norm: false,
        qkv_bias: false,
        window: None,
    };
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: Ffn::Dense(DenseFfn { width: 14_336 }),
    };
    let expected = ModelConfig {
        family: Family(&llama::LLAMA),
        hidden_size: 4096,
        vocab_size: 128_256,
        context_len: 131_072,
        rms_norm_eps: 1e-5,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 500_000.0,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context_len: 8192.0,
            },
        }],
        layers: vec![layer; 32],
        tie_word_embeddings: false,
        bos_token_id: Some(128_000),
        eos_token_ids: vec![128_001],
    };
    assert_eq!(read(&published("Llama-3.1-8B")).unwrap(), expected);
}

#[test]
fn qwen2_is_read() {
    let attention = Attention {
        num_heads: 28,
        num_kv_heads: 4,
        head_dim: 128,
        scale: 0.088_388_346,
        rope: 0,
        qk_norm: false,
        qkv_bias: true,
        window: None,
    };
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: Ffn::Dense(DenseFfn { width: 18_944 }),
    };
    let expected = ModelConfig {
        family: Family(&qwen2::QWEN2),
        hidden_size: 3584,
        vocab_size: 152_064,
        context_len: 32_768,
        rms_norm_eps: 1e-6,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 1_000_000.0,
            scaling: RopeScaling::None,
        }],
        layers: vec![layer; 28],
        tie_word_embeddings: false,
        bos_token_id: Some(151_643),
        eos_token_ids: vec![151_645],
    };
    assert_eq!(read(&published("Qwen2-7B-Instruct")).unwrap(), expected);
}

#[test]
fn qwen3_is_read() {
    let attention = Attention {
        num_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        scale: 0.088_388_346,
        rope: 0,
        qk_norm: true,
        qkv_bias: false,
        window: None,
    };
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: Ffn::Dense(DenseFfn { width: 9728 }),
    };
    let expected = ModelConfig {
        family: Family(&qwen3::QWEN3),
        hidden_size: 2560,
        vocab_size: 151_936,
        context_len: 262_144,
        rms_norm_eps: 1e-6,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 5_000_000.0,
            scaling: RopeScaling::None,
        }],
        layers: vec![layer; 36],
        tie_word_embeddings: true,
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
fn one_unknown_key_is_refused_by_name_in_each_family() {
    for name in PUBLISHED {
        let family = published(name)["model_type"].as_str().unwrap().to_owned();
        let message = refusal(name, "logit_scale", json!(0.0625));
        let expected = format!(
            "config.json: logit_scale is 0.0625, a key that {family} models are not known to have, \
             so it may change what the model computes; remove it if it does not"
        );
        assert!(message.ends_with(&expected), "{message}");
        for value in [
            json!(true),
            json!("alibi"),
            json!([1]),
            json!({"a": 1}),
            json!(0),
        ] {
            let message = refusal(name, "position_bias", value.clone());
            let expected = format!("position_bias is {value}, a key that");
            assert!(message.contains(&expected), "{message}");
        }
        for value in [json!(false), json!(null), json!(""), json!([]), json!({})] {
            let mut config = published(name);
            config["position_bias"] = value;
            read(&config).unwrap();
        }
        let message = refusal(
            name,
            "rope_scaling",
            json!({"rope_type": "default", "mrope_section": [16, 24, 24]}),
        );
        assert!(
            message.contains("rope_scaling.mrope_section is [16,24,24], a key"),
            "{message}"
        );
    }
}

#[test]
fn a_layer_with_a_window_is_refused_by_its_number() {
    let name = "Qwen3-4B-Instruct-2507";
    let mut config = published(name);
    config["use_sliding_window"] = json!(true);
    config["sliding_window"] = json!(4096);
    read(&config).expect("36 layers have no window, and there are no more");
    config["max_window_layers"] = json!(30);
    let sentence = "the window of attention in layer 30 is 4096 keys, which is not supported; \
                    supported: layers that attend to all keys before";
    let message = read(&config).unwrap_err().to_string();
    assert!(message.ends_with(sentence), "{message}");
    config["sliding_window"] = json!(262_144);
    read(&config).expect("a window as long as the context hides nothing");
    config["sliding_window"] = json!(4096);
    let mut types = vec!["full_attention"; 36];
    config["layer_types"] = json!(types);
    read(&config).expect("layer types count before max_window_layers");
    types[30] = "sliding_attention";
    config["layer_types"] = json!(types);
    let message = read(&config).unwrap_err().to_string();
    assert!(message.ends_with(sentence), "{message}");
    types[30] = "chunked_attention";
    let message = refusal(name, "layer_types", json!(types));
    assert!(
        message.contains("layer_types is chunked_attention"),
        "{message}"
    );
    let message = refusal(name, "layer_types", json!(types[1..]));
    assert!(message.contains("a list of 36 strings"), "{message}");
}

#[test]
fn a_gguf_file_describes_the_same_layers_as_the_folder() {
    for (file, folder) in [
        ("llama-f32", "tiny-llama"),
        ("qwen2-q8_0", "tiny-qwen2"),
        ("qwen3-q8_0", "tiny-qwen3"),
    ] {
        let file = Gguf::open(&golden(&format!("tiny-gguf/{file}.gguf"))).unwrap();
        let (config, _) = gguf::read_config(&file).unwrap();
        assert_eq!(config, read_config(&golden(folder)).unwrap());
    }
}

#[test]
fn an_unknown_key_of_a_gguf_file_is_refused_by_name() {
    let mut bytes = std::fs::read(golden("tiny-gguf/llama-q4_0.gguf")).unwrap();
    let key = b"llama.rope.freq_base";
    let at = bytes.windows(key.len()).position(|window| window == key);
    bytes[at.unwrap()..][..key.len()].copy_from_slice(b"llama.rope.Freq_base");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, bytes).unwrap();
    let refused = gguf::read_config(&Gguf::open(&path).unwrap()).unwrap_err();
    let message = refused.to_string();
    assert!(
        message.contains("llama.rope.Freq_base is 10000, a key that llama"),
        "{message}"
    );
}
