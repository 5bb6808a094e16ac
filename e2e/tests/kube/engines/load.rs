//! Streams under which a deployment is moved: so many open at every time, each whole and word for word as it was before.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use pd_e2e::client::Client;
use pd_protocol::labels::{self, HEADER_DECODE, HEADER_PREFILL};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Streams that are open at every time, and their length: 20 s and more on two busy cores.
pub(super) const STREAMS: usize = 4;
const TOKENS: u32 = 200;
/// A stream that has begun has ended by then.
const STREAM_WITHIN: Duration = Duration::from_secs(420);

/// Revision of the prefill and of the decode worker that an answer came from.
pub(super) type Pair = (String, String);

/// A whole answer, and where it came from.
pub(super) struct Said {
    pub(super) text: String,
    pair: Pair,
}

/// One greedy answer, streamed to its end.
pub(super) async fn stream(url: &str, pods: &Api<Pod>, nr: usize) -> Result<Said> {
    let request = json!({
        "model": "smollm2", "stream": true, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": true,
        "messages": [{"role": "user", "content": format!("Count from {} on.", nr * 100)}],
    });
    let answer = async {
        let mut events = Client::new().stream(url, &request).await?;
        let worker = |name: &str| {
            let value = events
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok());
            value
                .map(str::to_owned)
                .with_context(|| format!("no {name}"))
        };
        // While they run: another pod may bear the name later.
        let pair = (
            revision(pods, &worker(HEADER_PREFILL)?).await?,
            revision(pods, &worker(HEADER_DECODE)?).await?,
        );
        let text = events.said(|| ()).await?;
        Ok(Said { text, pair })
    };
    tokio::time::timeout(STREAM_WITHIN, answer)
        .await
        .context("a stream takes too long")?
}

async fn revision(pods: &Api<Pod>, name: &str) -> Result<String> {
    let pod = pods.get_metadata(name).await?;
    let revision = pod.labels().get(labels::REVISION);
    Ok(revision.context("a worker's revision")?.clone())
}

/// Streams that follow each other, so many at a time; each must be whole and say what it said before.
pub(super) struct Load {
    streams: JoinSet<Result<()>>,
    ends: Arc<AtomicBool>,
    ended: Arc<AtomicUsize>,
    failures: Arc<parking_lot::Mutex<Vec<String>>>,
    pairs: Arc<parking_lot::Mutex<BTreeMap<Pair, usize>>>,
}

// === impl Load ===

impl Load {
    pub(super) fn start(url: &str, pods: &Api<Pod>, known: Vec<String>) -> Self {
        let load = Self {
            streams: JoinSet::new(),
            ends: Arc::default(),
            ended: Arc::default(),
            failures: Arc::default(),
            pairs: Arc::default(),
        };
        let mut load = load;
        for (nr, wanted) in known.into_iter().enumerate() {
            let (url, ends) = (url.to_owned(), Arc::clone(&load.ends));
            let (ended, failures) = (Arc::clone(&load.ended), Arc::clone(&load.failures));
            let (pairs, pods) = (Arc::clone(&load.pairs), pods.clone());
            load.streams.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    match stream(&url, &pods, nr).await {
                        Ok(said) if said.text == wanted => {
                            *pairs.lock().entry(said.pair).or_default() += 1;
                            ended.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(said) => failures
                            .lock()
                            .push(format!("{:?} instead of {wanted:?}", said.text)),
                        Err(error) => failures.lock().push(format!("{error:#}")),
                    }
                }
                Ok(())
            });
        }
        load
    }

    pub(super) fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self) -> Result<()> {
        let failures = self.failures.lock();
        ensure!(
            failures.is_empty(),
            "{} streams failed: {failures:#?}",
            failures.len()
        );
        Ok(())
    }

    /// How many answers came from each pair.
    pub(super) fn pairs(&self) -> BTreeMap<Pair, usize> {
        self.pairs.lock().clone()
    }

    /// Ends with the streams that are open.
    pub(super) async fn stop(mut self) -> Result<BTreeMap<Pair, usize>> {
        self.ends.store(true, Ordering::Relaxed);
        while let Some(ended) = self.streams.join_next().await {
            ended??;
        }
        let (whole, failed) = (self.ended(), self.failures.lock().len());
        eprintln!("{whole} streams of {TOKENS} tokens whole, {failed} failed");
        if whole == 0 {
            bail!("no stream has ended");
        }
        self.check()?;
        Ok(self.pairs())
    }
}
