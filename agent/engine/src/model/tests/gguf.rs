//! GGUF files beside transformers, and those that llama.cpp's converter made beside llama.cpp: `make converted`.

use super::*;
use crate::text::Tokenizer;
use crate::weights::Gguf;
use serde::Deserialize;

#[test]
fn every_gguf_format_matches_transformers() {
    for (name, bound) in [
        ("llama-f32", GOLDEN_BOUND),
        ("llama-f16", GOLDEN_BOUND),
        ("llama-bf16", GOLDEN_BOUND),
        ("qwen3moe-f32", GOLDEN_BOUND),
        ("llama-q8_0", CODES_BOUND),
        ("llama-q4_0", CODES_BOUND),
        ("llama-q4_1", CODES_BOUND),
        ("llama-k", CODES_BOUND),
        ("qwen2-q8_0", CODES_BOUND),
        ("qwen3-q8_0", CODES_BOUND),
        ("qwen3moe-q8_0", CODES_BOUND),
        ("gemma3-q8_0", CODES_BOUND),
    ] {
        let golden_file = format!("tiny-gguf/{name}.golden.safetensors");
        let model = format!("tiny-gguf/{name}.gguf");
        assert_golden_on(runner::backend(), &model, &golden_file, bound);
    }
}

/// llama.cpp takes GELU from a table in float16.
const GELU_TABLE_BOUND: f32 = 5e-3;

/// Files of `PDSERVE_CONVERTED_DIR` that end so, without the end; none where it is not set.
fn files(end: &str) -> Vec<String> {
    let Some(folder) = std::env::var_os("PDSERVE_CONVERTED_DIR") else {
        return Vec::new();
    };
    let paths = fs::read_dir(folder).unwrap();
    let paths = paths.map(|entry| {
        entry
            .unwrap()
            .path()
            .into_os_string()
            .into_string()
            .unwrap()
    });
    let mut found: Vec<String> = paths
        .filter_map(|path| Some(path.strip_suffix(end)?.to_owned()))
        .collect();
    assert!(!found.is_empty(), "no file ends in {end}");
    found.sort_unstable();
    found
}

#[test]
fn converted_models_match_llama_cpp() {
    for model in files(".golden.safetensors") {
        let bound = if model.contains("gemma3") {
            GELU_TABLE_BOUND
        } else {
            GOLDEN_BOUND
        };
        let golden_file = format!("{model}.golden.safetensors");
        let model = format!("{model}.gguf");
        assert_golden_on(runner::backend(), &model, &golden_file, bound);
    }
}

#[test]
fn converted_vocabularies_match_llama_cpp() {
    #[derive(Deserialize)]
    struct Text {
        text: String,
        ids: Vec<u32>,
    }
    for vocabulary in files(".texts.json") {
        let gguf = Gguf::open(Path::new(&format!("{vocabulary}.gguf"))).unwrap();
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        let texts = fs::read(format!("{vocabulary}.texts.json")).unwrap();
        let texts: Vec<Text> = serde_json::from_slice(&texts).unwrap();
        for Text { text, ids } in &texts {
            assert_eq!(
                &tokenizer.encode(text, false).unwrap(),
                ids,
                "{vocabulary}: {text:?}"
            );
        }
        println!("{vocabulary}: {} texts", texts.len());
    }
}
