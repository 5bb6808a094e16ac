//! Fetches a request's stages from the admin ports of the processes that served it.

use crate::ask::AnswerTrace;
use anyhow::{Context, Result};
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use pd_protocol::timeline::{RequestTimeline, Stage};
use pd_protocol::{labels, ports};
use std::time::Duration;

/// Stages are recorded just after the client has its last byte.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);

/// The timelines of router, prefill and decode.
///
/// # Errors
/// When a process does not know the room, or a header is missing.
pub(crate) async fn fetch(answer: &AnswerTrace, token: &str) -> Result<Vec<RequestTimeline>> {
    let header = |name: &str| {
        let value = answer
            .headers
            .get(name)
            .with_context(|| format!("no {name} header"))?;
        Ok::<_, anyhow::Error>(value.to_str()?.to_owned())
    };
    let room = header(labels::HEADER_ROOM)?;
    let client = Client::new().with_bearer(token);
    let mut timelines = Vec::new();
    for (name, last) in [
        (labels::HEADER_ROUTER, Stage::RouterDone),
        (labels::HEADER_PREFILL, Stage::LastWrite),
        (labels::HEADER_DECODE, Stage::LastToken),
    ] {
        let url = format!("{}/timeline/{room}", admin_base(&header(name)?)?);
        let mut found = None;
        eventually(RECORDED_WITHIN, || {
            let (client, url) = (client.clone(), url.clone());
            let slot = &mut found;
            async move {
                let answer = client.get(&url).await?;
                anyhow::ensure!(answer.status == 200, "{url}: {}", answer.text());
                let timeline: RequestTimeline = serde_json::from_slice(&answer.body)?;
                let done = timeline.events.iter().any(|e| e.stage == last);
                *slot = Some(timeline);
                anyhow::ensure!(done, "{url} has no {last:?} yet");
                Ok(())
            }
        })
        .await?;
        timelines.extend(found);
    }
    Ok(timelines)
}

/// The admin port of the process behind a base URL.
fn admin_base(url: &str) -> Result<String> {
    let authority = url.trim_start_matches("http://").trim_end_matches('/');
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    anyhow::ensure!(!host.is_empty(), "no host in {url}");
    Ok(format!("http://{host}:{}", ports::ADMIN))
}
