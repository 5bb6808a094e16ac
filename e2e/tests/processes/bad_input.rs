//! Bad input over processes: a clear message that says what, where and what to do, and no side
//! effect. Each file feeds one door.

mod bootstrap;
mod control;
mod deployments;
mod models;
mod requests;
mod rooms;

use anyhow::{Context, Result, ensure};
use pd_e2e::fleet::{Fleet, FleetSpec};
use pd_e2e::prompts::{essence, greedy, ids};
use pd_e2e::quiet::quiet;
use serde_json::Value;

/// A fleet, and what it answered before anything bad came.
struct Served {
    fleet: Fleet,
    request: Value,
    answer: Value,
}

// === impl Served ===

impl Served {
    async fn start(spec: FleetSpec) -> Result<Self> {
        let fleet = spec.start().await?;
        let request = greedy(&ids(1, 40), 8);
        let answer = ask(&fleet, &request).await?;
        Ok(Self {
            fleet,
            request,
            answer,
        })
    }

    /// The fleet gives the same tokens as before, holds nothing, and no thread of it has panicked.
    async fn unharmed(&self) -> Result<()> {
        let Self {
            fleet,
            request,
            answer,
        } = self;
        let again = ask(fleet, request).await.with_context(|| fleet.logs())?;
        ensure!(
            again == *answer,
            "answers {again} instead of {answer}\n{}",
            fleet.logs()
        );
        for worker in &fleet.workers {
            quiet(&fleet.client, &worker.url())
                .await
                .with_context(|| fleet.logs())?;
        }
        let logs = fleet.logs();
        ensure!(!logs.contains("panicked"), "a thread panicked\n{logs}");
        Ok(())
    }
}

async fn ask(fleet: &Fleet, request: &Value) -> Result<Value> {
    let answer = fleet.client.post(&fleet.url("/generate"), request).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    Ok(essence(&answer.json()?))
}

/// A refusal must contain every one of the words.
fn says(message: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(message.contains(word), "no {word:?} in: {message}");
    }
    Ok(())
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
