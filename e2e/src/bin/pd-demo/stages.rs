//! Fetches a request's stages from the admin ports of the processes that served it.

use crate::ask::AnswerTrace;
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries;
use pd_e2e::client::Client;
use pd_protocol::labels;
use pd_protocol::timeline::{RequestTimeline, Stage};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// The last stages are recorded just after the client has its last byte.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The timelines of router, prefill and decode.
///
/// # Errors
/// When a process does not know the room, or a header of the answer is missing.
pub(crate) async fn fetch(
    endpoint: &str,
    answer: &AnswerTrace,
    token: &str,
) -> Result<Vec<RequestTimeline>> {
    let header = |name: &str| -> Result<&str> {
        let value = answer
            .headers
            .get(name)
            .with_context(|| format!("no {name} header"))?;
        Ok(value.to_str()?)
    };
    let room = header(labels::HEADER_ROOM)?;
    let pods = pods(endpoint).await?;
    let router = admin_url(&pods, "component", "router")?;
    let prefill = admin_url(&pods, "name", header(labels::HEADER_PREFILL)?)?;
    let decode = admin_url(&pods, "name", header(labels::HEADER_DECODE)?)?;
    let client = Client::new().with_bearer(token)?;
    let mut timelines = Vec::new();
    for (admin, last) in [
        (router, Stage::RouterDone),
        (prefill, Stage::LastWrite),
        (decode, Stage::LastToken),
    ] {
        timelines.push(timeline(&client, &format!("{admin}/timeline/{room}"), last).await?);
    }
    Ok(timelines)
}

/// The pods of the deployment behind an endpoint, as `pd-operator local status` lists them.
async fn pods(endpoint: &str) -> Result<Vec<Value>> {
    let mut status = tokio::process::Command::new(binaries::binary("pd-operator"));
    let output = status.args(["local", "status", "--json"]).output().await?;
    let states: Vec<Value> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("status says {}", String::from_utf8_lossy(&output.stderr)))?;
    let ours = |state: &&Value| {
        state["endpoint"]
            .as_str()
            .is_some_and(|found| found.starts_with(endpoint))
    };
    let state = states
        .iter()
        .find(ours)
        .with_context(|| format!("nothing serves {endpoint}"))?;
    Ok(state["pods"].as_array().cloned().unwrap_or_default())
}

fn admin_url<'a>(pods: &'a [Value], field: &str, value: &str) -> Result<&'a str> {
    let pod = pods.iter().find(|pod| pod[field] == value);
    let url = pod.and_then(|pod| pod["admin_url"].as_str());
    url.with_context(|| format!("no pod has {field} {value}"))
}

/// One process's timeline, once it has its last stage.
async fn timeline(client: &Client, url: &str, last: Stage) -> Result<RequestTimeline> {
    let asked = Instant::now();
    loop {
        let answer = client.get(url).await?;
        ensure!(answer.status == 200, "{url}: {}", answer.text());
        let timeline: RequestTimeline = serde_json::from_slice(&answer.body)?;
        let complete = timeline.events.iter().any(|event| event.stage == last);
        if complete || asked.elapsed() > RECORDED_WITHIN {
            return Ok(timeline);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
