//! The table as a whole, and what holds in each family.

use super::*;
use crate::model::config::hf::read_config;
use crate::model::config::{ConfigError, ModelConfig, gguf};
use crate::weights::Gguf;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub(super) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

/// Published configurations, one of each family.
const PUBLISHED: [&str; 12] = [
    "deepseek-v2-lite",
    "deepseek-v3",
    "gpt-oss-20b",
    "gemma-3-4b-it",
    "Llama-3.1-8B",
    "Mistral-Nemo-Base-2407",
    "Qwen2-7B-Instruct",
    "Qwen3-4B-Instruct-2507",
    "qwen3-30b-a3b",
    "qwen3-next-80b-a3b",
    "qwen3.5-27b",
    "qwen3.5-35b-a3b",
];

pub(super) fn published(name: &str) -> Value {
    let alone = golden("configs").join(format!("{name}.json"));
    let beside_its_tensors = golden("published").join(name).join("config.json");
    let text = std::fs::read(alone).or_else(|_| std::fs::read(beside_its_tensors));
    serde_json::from_slice(&text.unwrap()).unwrap()
}

pub(super) fn read(config: &Value) -> Result<ModelConfig, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    read_config(folder.path()).map(|(config, _)| config)
}

pub(super) fn refusal(name: &str, key: &str, value: Value) -> String {
    let mut config = published(name);
    config[key] = value;
    read(&config).unwrap_err().to_string()
}

#[test]
fn no_two_families_answer_to_one_name() {
    let mut types = model_types();
    types.sort_unstable();
    let mut distinct = types.clone();
    distinct.dedup();
    assert_eq!(types, distinct);
    assert_eq!(
        FAMILIES.len(),
        PUBLISHED.len(),
        "each has its published file"
    );
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
        // Where the decoder's keys are in an object of their own, all of it is unknown.
        let is_named = message.contains("config.json: rope_scaling");
        let is_shown = message.contains("[16,24,24]") && message.contains("a key that");
        assert!(is_named && is_shown, "{message}");
    }
}

#[test]
fn a_gguf_file_describes_the_same_layers_as_the_folder() {
    for (file, folder) in [("llama-f32", "tiny-llama"), ("qwen3-q8_0", "tiny-qwen3")] {
        let file = Gguf::open(&golden(&format!("tiny-gguf/{file}.gguf"))).unwrap();
        let (config, _) = gguf::read_config(&file).unwrap();
        assert_eq!(config, read_config(&golden(folder)).unwrap().0);
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
