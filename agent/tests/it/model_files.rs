//! What may replace a model's own files, and what those files set.

use crate::agent::{Agent, command, tiny_model};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The tiny model in a folder of its own, with this `generation_config.json`.
fn model_with(generation: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(tiny_model()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        std::os::unix::fs::symlink(&path, folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("generation_config.json");
    fs::remove_file(&path).unwrap();
    fs::write(&path, generation.to_string()).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

async fn chat(agent: &Agent, content: &str, more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": content}], "max_tokens": 24, "ignore_eos": true,
    });
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let url = agent.url("/v1/chat/completions");
    agent.client.post(&url, &body).await.ok()
}

async fn said(agent: &Agent, more: Value) -> String {
    let answer = chat(agent, "the sea", more).await;
    answer["choices"][0]["message"]["content"].to_string()
}

#[tokio::test]
async fn a_chat_is_sampled_as_the_models_files_say_unless_the_client_does() {
    let model = model_with(&json!({"eos_token_id": 2, "temperature": 0.0, "top_k": 0}));
    let path = text(model.path());
    let agent = Agent::start(&["--model-path", path]).await;
    let greedy = said(&agent, json!({"temperature": 0})).await;
    assert_eq!(said(&agent, json!({})).await, greedy);
    assert_ne!(
        said(&agent, json!({"temperature": 1.5, "seed": 7})).await,
        greedy
    );
    let openai = Agent::start(&["--model-path", path, "--sampling-defaults", "openai"]).await;
    assert_ne!(said(&openai, json!({"seed": 7})).await, greedy);
}

#[tokio::test]
async fn a_default_out_of_range_ends_the_start_with_its_file_and_key() {
    let model = model_with(&json!({"eos_token_id": 2, "top_p": 1.5}));
    let args = ["--model-path", text(model.path()), "--port", "0"];
    let output = command(&args).output().await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let reason = "generation_config.json: top_p is 1.5, expected above 0, up to 1";
    assert!(log.contains(reason), "{log}");
}

#[tokio::test]
async fn a_template_file_replaces_the_models() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("brief.jinja");
    fs::write(&path, "{{ messages[-1]['content'][:3] }}").unwrap();
    let brief = Agent::start(&["--chat-template", text(&path)]).await;
    let own = Agent::start(&[]).await;
    let prompt_tokens = |answer: Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let longer = prompt_tokens(chat(&own, "the sea", json!({})).await);
    let first = prompt_tokens(chat(&brief, "the sea", json!({})).await);
    let second = prompt_tokens(chat(&brief, "the sky is high", json!({})).await);
    assert!(
        first == second && first < longer,
        "{first} {second} {longer}"
    );
    // Its prompts have other tokens, so the two must not be paired.
    assert_ne!(kv_compat(&brief).await, kv_compat(&own).await);
}

async fn kv_compat(agent: &Agent) -> Value {
    let info = agent.client.get(&agent.url("/server_info")).await.ok();
    info["kv_compat"].clone()
}

#[tokio::test]
async fn a_tokenizer_of_another_path_replaces_the_models() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(tiny_model().join(name), folder.path().join(name)).unwrap();
    }
    let path = text(folder.path());
    let agent = Agent::start(&["--tokenizer-path", path]).await;
    let info = agent.client.get(&agent.url("/get_model_info")).await.ok();
    assert_eq!(info["tokenizer_path"], path);
    let own = Agent::start(&[]).await;
    let body = json!({"text": "the sea", "sampling_params": {"temperature": 0}});
    let answer = agent.client.post(&agent.url("/generate"), &body).await.ok();
    let expected = own.client.post(&own.url("/generate"), &body).await.ok();
    assert_eq!(answer["output_ids"], expected["output_ids"]);
    assert_ne!(kv_compat(&agent).await, kv_compat(&own).await);
    let model = tiny_model();
    let args = [
        "--model-path",
        text(&model),
        "--port",
        "0",
        "--tokenizer-path",
        "/no/such",
    ];
    let output = command(&args).output().await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("/no/such"), "{log}");
}
