//! Requests through router and agents: the right status, and the field that is wrong.

use super::{Served, says, words};
use anyhow::{Context, Result, ensure};
use hyper::Method;
use pd_e2e::binaries;
use pd_e2e::fleet::{Fleet, FleetSpec};
use pd_e2e::prompts::{greedy, ids};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// Status of the answer and texts that its message must contain.
type Expected = (u16, &'static [&'static str]);

async fn refused(fleet: &Fleet, path: &str, body: Vec<u8>, expected: Expected) -> Result<()> {
    let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
    let answer = fleet
        .client
        .send(Method::POST, &fleet.url(path), body)
        .await?;
    let (status, parts) = expected;
    ensure!(
        answer.status.as_u16() == status,
        "{path} {shown}: {} instead of {status}: {}",
        answer.status,
        answer.text()
    );
    let error = answer.json()?;
    let message = error["error"]["message"].as_str().unwrap_or_default();
    says(message, parts).with_context(|| format!("{path} {shown}"))
}

fn chat(patch: Value) -> Vec<u8> {
    let mut body = json!({
        "model": "tiny-llama", "max_tokens": 4,
        "messages": [{"role": "user", "content": "hello"}],
    });
    for (key, value) in patch.as_object().expect("a patch is an object") {
        body[key] = value.clone();
    }
    body.to_string().into_bytes()
}

fn cases() -> Vec<(&'static str, Vec<u8>, Expected)> {
    vec![
        (CHAT, b"{\"model\": ".to_vec(), (400, &["JSON"])),
        (CHAT, b"[1, 2]".to_vec(), (400, &["object"])),
        (
            CHAT,
            b"{\"model\":\"\xff\xfe\"}".to_vec(),
            (400, &["UTF-8"]),
        ),
        (
            CHAT,
            chat(json!({"model": "no-such-model"})),
            (404, &["no-such-model"]),
        ),
        (CHAT, chat(json!({"messages": "hi"})), (400, &["messages"])),
        (
            CHAT,
            chat(json!({"temperature": -1})),
            (400, &["temperature", "-1"]),
        ),
        (
            CHAT,
            chat(json!({"temperature": "hot"})),
            (400, &["temperature"]),
        ),
        (CHAT, chat(json!({"top_p": 1.5})), (400, &["top_p", "1.5"])),
        (
            CHAT,
            chat(json!({"max_tokens": -3})),
            (400, &["max_tokens"]),
        ),
        (CHAT, chat(json!({"n": 0})), (400, &["n"])),
        (
            CHAT,
            br#"{"model":"tiny-llama","temperature":NaN}"#.to_vec(),
            (400, &["JSON"]),
        ),
        (
            "/generate",
            greedy(&ids(3, 1500), 4).to_string().into(),
            (400, &["1500", "1023"]),
        ),
        (
            "/generate",
            greedy(&[4_000_000], 4).to_string().into(),
            (400, &["4000000"]),
        ),
        ("/generate", b"{}".to_vec(), (400, &["input_ids"])),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_says_what_and_where_and_leaves_the_fleet_serving() -> Result<()> {
    let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
    spec.agent_args = words("--max-total-tokens 1024 --served-model-name tiny-llama");
    let served = Served::start(spec).await?;
    let fleet = &served.fleet;
    for (path, body, expected) in cases() {
        refused(fleet, path, body, expected).await?;
    }
    refused(
        fleet,
        CHAT,
        vec![b' '; 100 << 20],
        (413, &["4194304", "--max-body-bytes of the workers"]),
    )
    .await
    .or_else(|error| {
        // The router may close the connection before a body that large was sent.
        if error.to_string().contains("no answer") {
            Ok(())
        } else {
            Err(error)
        }
    })?;
    served.unharmed().await
}
