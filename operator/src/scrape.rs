//! Reads the `/metrics` of agents and routers.

use crate::controller::autoscale::sample::{Sample, SampleError, read_router_queue};
use crate::http_client::{CallError, HttpClient};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for an answer: a later answer is out of date.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScrapeError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("what {url}/metrics says is not believed: {source}")]
    Sample { url: String, source: SampleError },
}

/// What an agent says of itself, dated by the time since `epoch`.
pub(crate) async fn agent(
    client: &HttpClient,
    url: &str,
    epoch: Instant,
) -> Result<Sample, ScrapeError> {
    let text = metrics(client, url).await?;
    Sample::read(&text, epoch.elapsed()).map_err(|source| refused(url, source))
}

/// Requests that wait in a router for a place.
pub(crate) async fn router(client: &HttpClient, url: &str) -> Result<f64, ScrapeError> {
    let text = metrics(client, url).await?;
    read_router_queue(&text).map_err(|source| refused(url, source))
}

async fn metrics(client: &HttpClient, url: &str) -> Result<String, CallError> {
    client.text(&format!("{url}/metrics"), ANSWER_LIMIT).await
}

fn refused(url: &str, source: SampleError) -> ScrapeError {
    ScrapeError::Sample {
        url: url.to_owned(),
        source,
    }
}
