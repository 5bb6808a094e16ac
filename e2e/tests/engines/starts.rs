//! Pairs of an engine that are started as other specs say, each until it answers: their arguments are not only read.

use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::engines::{Engine, MODEL};
use pd_e2e::local::Local;
use serde_json::{Value, json};
use std::time::Instant;

/// What is laid over an engine's deployment.
fn variants(engine: &Engine) -> Vec<Value> {
    let arg = |name: &str, value: Option<&str>| match value {
        Some(value) => json!({"name": name, "value": value}),
        None => json!({"name": name}),
    };
    let args = |all: Vec<Value>| json!({"engine": {"args": all}});
    match engine.name {
        "sglang" => vec![
            json!({"kv": {"transport": "auto"}}),
            json!({"kv": {"transport": "mooncake", "pageSize": 64}}),
            json!({"kv": {"transport": "mooncake", "dtype": "bfloat16", "pageSize": 1}}),
            args(vec![
                arg("chunked-prefill-size", Some("256")),
                arg("disable-radix-cache", None),
            ]),
            args(vec![
                arg("context-length", Some("4096")),
                arg("schedule-policy", Some("fcfs")),
            ]),
        ],
        _ => vec![
            json!({"kv": {"transport": "nixl"}}),
            json!({"kv": {"pageSize": 64}}),
            json!({"kv": {"dtype": "auto", "pageSize": 32}}),
            args(vec![
                arg("max-num-batched-tokens", Some("512")),
                arg("no-enable-prefix-caching", None),
            ]),
            args(vec![
                arg("max-num-seqs", Some("8")),
                arg("max-logprobs", Some("5")),
            ]),
        ],
    }
}

pub(crate) async fn run(engine: &Engine) -> Result<()> {
    let env: Vec<(&str, &str)> = engine.env().collect();
    for variant in variants(engine) {
        let mut deployment = engine.deployment()?;
        lay_over(&mut deployment["spec"], &variant);
        let folder = tempfile::tempdir()?;
        let began = Instant::now();
        let text = deployment.to_string();
        let local = Local::start_with(folder.path(), &text, &env, engine.starts_within).await;
        let local = local.with_context(|| variant.to_string())?;
        let took = began.elapsed().as_secs_f64();
        let url = format!("{}/v1/chat/completions", local.base);
        let ask = json!({
            "model": MODEL, "max_tokens": 8, "temperature": 0,
            "messages": [{"role": "user", "content": "What is two plus three?"}],
        });
        let answer = Client::new().post(&url, &ask).await?;
        ensure!(answer.status == 200, "{variant}: {}", answer.text());
        eprintln!(
            "{}: {variant}: a pair answers after {took:.0} s",
            engine.name
        );
        local.stop().await?;
    }
    Ok(())
}

/// Objects are merged, and what is added to a list comes behind what is there.
fn lay_over(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(under), Value::Array(over)) => under.extend(over.iter().cloned()),
        (under, over) => *under = over.clone(),
    }
}
