//! Requests in flight together, each with how it ended and how long that took.

use crate::client::Client;
use anyhow::{Result, bail, ensure};
use serde_json::Value;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// How one request ended.
#[derive(Debug)]
pub struct Outcome {
    pub index: usize,
    /// The answer, or the reason that came instead of it.
    pub result: Result<Value, String>,
    pub took: Duration,
}

/// Requests in flight.
#[derive(Default)]
pub struct Load {
    tasks: JoinSet<Outcome>,
    started: usize,
}

// === impl Load ===

impl Load {
    /// Sends one request to `/generate`, streamed or not, as its body says.
    pub fn send(&mut self, client: &Client, url: &str, request: Value) {
        let index = self.started;
        self.started += 1;
        let (client, url) = (client.clone(), url.to_owned());
        self.tasks.spawn(async move {
            let started = Instant::now();
            let result = whole_answer(&client, &url, &request).await;
            Outcome {
                index,
                result,
                took: started.elapsed(),
            }
        });
    }

    /// Every outcome, in order of sending.
    ///
    /// # Errors
    /// When a request still hangs after `limit`.
    pub async fn outcomes(mut self, limit: Duration) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        while outcomes.len() < self.started {
            match timeout(limit, self.tasks.join_next()).await {
                Ok(Some(outcome)) => outcomes.push(outcome?),
                Ok(None) => bail!("a request's task is gone"),
                Err(_) => bail!("{} requests hang", self.started - outcomes.len()),
            }
        }
        outcomes.sort_by_key(|outcome| outcome.index);
        Ok(outcomes)
    }
}

/// The answer with all of its tokens, or why there is none.
async fn whole_answer(client: &Client, url: &str, request: &Value) -> Result<Value, String> {
    let answer = match request["stream"].as_bool() {
        Some(true) => last_event(client, url, request).await,
        _ => plain(client, url, request).await,
    };
    let answer = answer.map_err(|error| format!("{error:#}"))?;
    let wanted = request["sampling_params"]["max_new_tokens"].as_u64();
    let got = answer["meta_info"]["completion_tokens"].as_u64();
    if got == wanted {
        Ok(answer)
    } else {
        Err(format!("truncated: {got:?} of {wanted:?} tokens"))
    }
}

async fn plain(client: &Client, url: &str, request: &Value) -> Result<Value> {
    let answer = client.post(url, request).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    answer.json()
}

async fn last_event(client: &Client, url: &str, request: &Value) -> Result<Value> {
    let events = client.stream(url, request).await?.rest().await?;
    let Some(last) = events.into_iter().last() else {
        bail!("the stream is empty")
    };
    match last["error"]["message"].as_str() {
        Some(message) => bail!("error event: {message}"),
        None => Ok(last),
    }
}
