//! What clients do to the router.

use super::crowd::{Member, crowd};
use super::{Extent, Outcomes, Target};
use crate::client::Client;
use crate::prompts::{greedy, ids};
use anyhow::Result;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Prompts that are on their way at once.
const PROMPTS_AT_ONCE: usize = 4;
const PROMPT_BYTES: usize = 32_000_000;
/// Of a body that stops, the announced length and what comes of it.
const BODY_BYTES: usize = 31_000_000;
const BODY_PART_BYTES: usize = 1 << 20;
/// Within this a long prompt is answered, or is counted as such.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

const HEAD: &str = "POST /generate HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\n";

/// A crowd at the router whose members all say the same.
async fn all_say(target: &Target, extent: Extent, says: Vec<u8>, reads: bool) -> Result<Outcomes> {
    let (to, says) = (target.router, Bytes::from(says));
    crowd(extent, |_| Member {
        to,
        says: says.clone(),
        reads,
    })
    .await
}

pub(super) async fn half_heads(target: &Target, extent: Extent) -> Result<Outcomes> {
    all_say(target, extent, HEAD.into(), true).await
}

pub(super) async fn idle_connections(target: &Target, extent: Extent) -> Result<Outcomes> {
    all_say(target, extent, Vec::new(), true).await
}

pub(super) async fn header_floods(target: &Target, extent: Extent) -> Result<Outcomes> {
    let many: String = (0..10_000).map(|nr| format!("x-{nr}: a\r\n")).collect();
    let long = format!("x-long: {}\r\n", "a".repeat(1 << 20));
    let floods = [many, long].map(|headers| Bytes::from(format!("{HEAD}{headers}\r\n")));
    let to = target.router;
    crowd(extent, |nr| Member {
        to,
        says: floods[nr % floods.len()].clone(),
        reads: true,
    })
    .await
}

pub(super) async fn unfinished_bodies(target: &Target, extent: Extent) -> Result<Outcomes> {
    let mut says = format!("{HEAD}content-length: {BODY_BYTES}\r\n\r\n").into_bytes();
    says.resize(says.len() + BODY_PART_BYTES, b' ');
    all_say(target, extent, says, true).await
}

pub(super) async fn unread_streams(target: &Target, extent: Extent) -> Result<Outcomes> {
    let body = stream_request(1, 1000).to_string();
    let says = format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len());
    all_say(target, extent, says.into(), false).await
}

/// A stream whose every token comes with many log probabilities.
fn stream_request(seed: u64, new_tokens: u32) -> Value {
    let mut request = greedy(&ids(seed, 16), new_tokens);
    request["top_logprobs_num"] = json!(100);
    request["stream"] = json!(true);
    request
}

pub(super) async fn long_prompts(target: &Target, extent: Extent) -> Result<Outcomes> {
    let text = "a ".repeat(PROMPT_BYTES / 2);
    let params = json!({"max_new_tokens": 1});
    let body = Bytes::from(json!({"text": text, "sampling_params": params}).to_string());
    let mut outcomes = Outcomes::default();
    let mut tasks: JoinSet<String> = JoinSet::new();
    for nr in 0..extent.count {
        if nr >= PROMPTS_AT_ONCE
            && let Some(ended) = tasks.join_next().await
        {
            outcomes.add(ended?);
        }
        let (client, url, body) = (Client::new(), target.generate(), body.clone());
        tasks.spawn(async move {
            match timeout(ANSWER_LIMIT, client.send(Method::POST, &url, body)).await {
                Ok(Ok(answer)) => format!("answered {}", answer.status.as_u16()),
                Ok(Err(_)) => "closed".to_owned(),
                Err(_) => "open".to_owned(),
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        outcomes.add(ended?);
    }
    Ok(outcomes)
}

/// At a rate that leaves the attacked most of their cores, so that others wait for what leaving costs and not for work
/// that streams with readers would ask as well.
pub(super) async fn abandoned_streams(target: &Target, extent: Extent) -> Result<Outcomes> {
    const AT_ONCE: usize = 16;
    const EVERY: Duration = Duration::from_millis(10);
    let mut starts = interval(EVERY);
    let mut outcomes = Outcomes::default();
    let mut tasks: JoinSet<&str> = JoinSet::new();
    for nr in 0..extent.count {
        if nr >= AT_ONCE
            && let Some(ended) = tasks.join_next().await
        {
            outcomes.add(ended?);
        }
        starts.tick().await;
        // A client of its own: an abandoned connection is never used again.
        let (client, url) = (Client::new(), target.generate());
        tasks.spawn(async move {
            let request = stream_request(nr as u64, 400);
            match client.stream(&url, &request).await {
                Ok(mut stream) => match stream.next().await {
                    Ok(Some(_)) => "abandoned",
                    Ok(None) | Err(_) => "ended before its first event",
                },
                Err(_) => "refused",
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        outcomes.add(ended?);
    }
    Ok(outcomes)
}
