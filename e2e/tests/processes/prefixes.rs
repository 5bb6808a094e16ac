//! Decode's prefix cache over processes: the same answers with it and without, and fewer bytes.

use anyhow::{Context, Result, ensure};
use pd_e2e::binaries;
use pd_e2e::fleet::{Fleet, FleetSpec, words};
use pd_e2e::metrics::Metrics;
use pd_e2e::prompts::ids;
use pd_protocol::Role;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CHOICES: usize = 8;
const PROMPT_LEN: usize = 1100;

/// What a client got, and what it took.
struct Seen {
    answers: Vec<Value>,
    /// Of KV that decode received, for each request.
    bytes: Vec<f64>,
    elapsed: Duration,
}

async fn start(transport: &str, decode: &str) -> Result<Fleet> {
    let mut spec = FleetSpec::new(binaries::smollm2());
    spec.agent_args = words(&format!("--disaggregation-transfer-backend {transport}"));
    spec.decode_args = words(decode);
    spec.start().await
}

async fn received(fleet: &Fleet) -> Result<f64> {
    let decode = fleet.workers.iter().find(|one| one.role == Role::Decode);
    let decode = decode.context("the fleet has a decode worker")?;
    let metrics = Metrics::scrape(&fleet.client, &decode.url()).await?;
    Ok(metrics.sum("pdserve_kv_transfer_bytes_total", &[]))
}

/// Asks one after the other; `next` makes a request of all answers before it.
async fn ask(
    fleet: &Fleet,
    path: &str,
    len: usize,
    next: impl Fn(&[Value]) -> Value,
) -> Result<Seen> {
    let mut seen = Seen {
        answers: Vec::new(),
        bytes: Vec::new(),
        elapsed: Duration::ZERO,
    };
    for _ in 0..len {
        let before = received(fleet).await?;
        let began = Instant::now();
        let answer = fleet
            .client
            .post(&fleet.url(path), &next(&seen.answers))
            .await?;
        seen.elapsed += began.elapsed();
        let text = answer.text();
        ensure!(answer.status == 200, "{text}\n{}", fleet.logs());
        let answer = answer.json()?;
        seen.answers
            .push(json!({"choices": answer["choices"], "usage": answer["usage"]}));
        seen.bytes.push(received(fleet).await? - before);
    }
    Ok(seen)
}

async fn choices(fleet: &Fleet) -> Result<Seen> {
    let request = json!({
        "prompt": ids(3, PROMPT_LEN), "n": CHOICES, "max_tokens": 16,
        "temperature": 0.8, "seed": 7, "ignore_eos": true,
    });
    ask(fleet, "/v1/completions", 1, |_| request.clone()).await
}

async fn chat(fleet: &Fleet) -> Result<Seen> {
    let asked = [
        "Describe a river in the mountains, from its spring to the lake, in a few sentences.",
        "And now the same river in winter, when ice covers the lake and snow lies on its banks.",
        "Which of the two descriptions has more colours in it, and which of them do you prefer?",
    ];
    let next = |answers: &[Value]| {
        let mut messages = Vec::new();
        for (turn, content) in asked.iter().enumerate().take(answers.len() + 1) {
            messages.push(json!({"role": "user", "content": content}));
            if let Some(answer) = answers.get(turn) {
                messages.push(answer["choices"][0]["message"].clone());
            }
        }
        json!({"messages": messages, "max_tokens": 64, "temperature": 0})
    };
    ask(fleet, "/v1/chat/completions", asked.len(), next).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prompt_of_many_choices_and_the_turns_of_a_chat_move_once() -> Result<()> {
    for transport in ["tcp", "shm"] {
        let off = start(transport, "--disable-radix-cache").await?;
        let expected = (choices(&off).await?, chat(&off).await?);
        drop(off);
        let on = start(transport, "").await?;
        let found = (choices(&on).await?, chat(&on).await?);
        for (what, off, on) in [
            ("choices", expected.0, found.0),
            ("chat", expected.1, found.1),
        ] {
            ensure!(
                on.answers == off.answers,
                "{transport}, {what}:\n {:?}\n {:?}",
                on.answers,
                off.answers
            );
            println!(
                "{transport} {what}: bytes {:?} in {:?}, without a cache {:?} in {:?}",
                on.bytes, on.elapsed, off.bytes, off.elapsed
            );
            let (with, without): (f64, f64) = (on.bytes.iter().sum(), off.bytes.iter().sum());
            let most = if what == "choices" { 0.15 } else { 0.7 };
            ensure!(with < without * most, "{what}: {with} of {without} bytes");
        }
    }
    Ok(())
}
