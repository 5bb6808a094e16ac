//! Hugging Face folders: configurations of other networks, tokenizers that are missing or broken.

use super::{Damaged, are_refused, edit_json, of_llama, remove, truncate};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

const CONFIG: &str = "config.json";

/// Name, file at fault (where it contradicts the weights: the folder), key, value, words.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    Value,
    &'static [&'static str],
);

fn wrong_keys() -> Vec<Row> {
    vec![
        (
            "another family",
            CONFIG,
            "model_type",
            json!("mamba2"),
            &[
                "mamba2",
                "supported: deepseek_v2, deepseek_v3, gemma3, gemma3_text, gpt_oss, llama, mistral, qwen2, qwen3, qwen3_5, \
                 qwen3_5_text, qwen3_5_moe, qwen3_5_moe_text, qwen3_moe, qwen3_next",
            ],
        ),
        (
            "no family",
            CONFIG,
            "model_type",
            Value::Null,
            &["model_type is missing"],
        ),
        (
            "another head",
            CONFIG,
            "architectures",
            json!(["LlamaForSequenceClassification"]),
            &[
                "LlamaForSequenceClassification",
                "supported: LlamaForCausalLM",
            ],
        ),
        (
            "no width",
            CONFIG,
            "hidden_size",
            Value::Null,
            &["hidden_size is missing"],
        ),
        (
            "a width in words",
            CONFIG,
            "hidden_size",
            json!("wide"),
            &["hidden_size is \"wide\"", "a whole number"],
        ),
        (
            "a billion layers",
            CONFIG,
            "num_hidden_layers",
            json!(1_000_000_000),
            &["number of layers is 1000000000", "1 to 1024"],
        ),
        (
            "one layer more than there is",
            "",
            "num_hidden_layers",
            json!(4),
            &["model.layers.3.", "is missing"],
        ),
        (
            "another vocabulary",
            "",
            "vocab_size",
            json!(500),
            &["384×64", "asks for 500×64"],
        ),
    ]
}

fn other_networks() -> Vec<Row> {
    vec![
        (
            "heads that do not divide",
            CONFIG,
            "num_key_value_heads",
            json!(3),
            &["key-value heads is 3", "a divisor of the 4"],
        ),
        (
            "another activation",
            CONFIG,
            "hidden_act",
            json!("gelu"),
            &["hidden_act is gelu", "supported: silu"],
        ),
        (
            "another rotation",
            CONFIG,
            "rope_parameters",
            json!({"rope_type": "longrope", "rope_theta": 1.0}),
            &[
                "rope_type is longrope",
                "supported: default, linear, llama3, yarn",
            ],
        ),
        (
            "quantised safetensors",
            CONFIG,
            "quantization_config",
            json!({"quant_method": "awq"}),
            &["quantization_config", "a quantised GGUF file"],
        ),
    ]
}

fn damaged_configurations() -> Result<Vec<Damaged>> {
    let table = wrong_keys().into_iter().chain(other_networks());
    let mut cases = Vec::new();
    for (name, file, key, value, parts) in table {
        cases.push(of_llama(name, (file, parts), |folder| {
            edit_json(&folder.join(CONFIG), |config| {
                config.insert(key.to_owned(), value);
            })
        })?);
    }
    cases.push(of_llama(
        "a truncated configuration",
        (CONFIG, &["not valid JSON"]),
        |folder| truncate(&folder.join(CONFIG), 50),
    )?);
    cases.push(of_llama(
        "a configuration that is a list",
        (CONFIG, &["not valid JSON", "expected a map"]),
        |folder| Ok(std::fs::write(folder.join(CONFIG), "[]")?),
    )?);
    Ok(cases)
}

fn broken_texts() -> Result<Vec<Damaged>> {
    const TOKENIZER: &str = "tokenizer.json";
    const TEMPLATE: &str = "chat_template.jinja";
    let other_decoder = |folder: &Path| {
        edit_json(&folder.join(TOKENIZER), |tokenizer| {
            tokenizer.insert(
                "decoder".to_owned(),
                json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            );
        })
    };
    let write = |file: &'static str, text: &'static str| {
        move |folder: &Path| Ok(std::fs::write(folder.join(file), text)?)
    };
    Ok(vec![
        of_llama(
            "no tokenizer",
            (
                TOKENIZER,
                &["No such file", "a model folder needs its tokenizer.json"],
            ),
            |folder| remove(folder, TOKENIZER),
        )?,
        of_llama(
            "a truncated tokenizer",
            (TOKENIZER, &["is not valid", "EOF"]),
            |folder| truncate(&folder.join(TOKENIZER), 5000),
        )?,
        of_llama(
            "an empty object",
            (TOKENIZER, &["is not valid"]),
            write(TOKENIZER, "{}"),
        )?,
        of_llama(
            "another decoder",
            (TOKENIZER, &["WordPiece", "supported: ByteLevel"]),
            other_decoder,
        )?,
        of_llama(
            "a template with an open tag",
            (TEMPLATE, &["syntax error"]),
            write(TEMPLATE, "{% for m in messages %}{{ m"),
        )?,
        of_llama(
            "broken generation settings",
            ("generation_config.json", &["not valid JSON"]),
            write("generation_config.json", "{\"eos"),
        )?,
        of_llama(
            "a broken tokenizer configuration",
            ("tokenizer_config.json", &["is not valid"]),
            write("tokenizer_config.json", "{"),
        )?,
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_of_other_networks_are_named_with_their_key() -> Result<()> {
    are_refused(damaged_configurations()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokenizers_and_templates_that_do_not_work_are_named() -> Result<()> {
    are_refused(broken_texts()?).await
}
