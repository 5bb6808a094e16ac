//! Part `load`: clients that ask prefill, decode and router for everything at once, and what is left
//! behind when they have gone.

use crate::checks::Checks;
use crate::memory::Footprint;
use crate::site::{Site, TINY_QWEN3};
use anyhow::{Context, Result, bail, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{Fleet, eventually};
use pd_e2e::load::whole_answer;
use pd_e2e::metrics::Metrics;
use pd_e2e::prompts::{greedy, ids, sampled};
use pd_e2e::quiet::quiet;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::future::ready;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// More than the agents compute at once, so that some wait.
const CLIENTS: u64 = 40;
/// Share of the time after which memory is looked at first.
const WARM_UP: u32 = 3;
/// Longest wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// An agent's and the router's gauges follow within this.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

const ROUTED: &str = "pd_router_worker_requests";

/// What the clients saw.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    dropped: usize,
    failures: Vec<String>,
}

pub(crate) async fn run(site: &Site, checks: &mut Checks, seconds: u64) -> Result<()> {
    let fleet = site.spec(TINY_QWEN3, "").start().await?;
    let url = fleet.url("/generate");
    let all = Duration::from_secs(seconds);
    let warm = all / WARM_UP;
    let name = format!("{} s to warm up", warm.as_secs());
    checks.check(name, load(&url, 1, warm)).await;
    let name = "nothing is held";
    checks.check(name, nothing_held(&fleet)).await;
    let before = Footprint::of(&fleet).await?;

    let name = format!("{} s of load", (all - warm).as_secs());
    checks.check(name, load(&url, 2, all - warm)).await;
    let name = "nothing is held after it";
    checks.check(name, nothing_held(&fleet)).await;
    let after = Footprint::settled(&fleet, &before).await?;
    let resident = after.resident_since(&before);
    checks.check("resident memory", ready(resident)).await;
    match after.device_since(&before).transpose() {
        None => checks.skipped("device memory", "no source reports it"),
        Some(device) => checks.check("device memory", ready(device)).await,
    }
    Ok(())
}

/// Every client asks one request after another until the time is over.
async fn load(url: &str, round: u64, lasts: Duration) -> Result<String> {
    let until = Instant::now() + lasts;
    let mut clients = JoinSet::new();
    for nr in 0..CLIENTS {
        let url = url.to_owned();
        clients.spawn(async move {
            let client = Client::new();
            let mut rng = StdRng::seed_from_u64(round * 1000 + nr);
            let mut tally = Tally::default();
            while Instant::now() < until {
                let asked = timeout(ANSWER_LIMIT, tally.ask(&client, &url, &mut rng)).await;
                if asked.is_err() {
                    tally
                        .failures
                        .push(format!("no answer within {ANSWER_LIMIT:?}"));
                }
            }
            tally
        });
    }
    let mut all = Tally::default();
    for tally in clients.join_all().await {
        all.answered += tally.answered;
        all.dropped += tally.dropped;
        all.failures.extend(tally.failures);
    }
    if let Some(first) = all.failures.first() {
        bail!("{} requests failed, the first: {first}", all.failures.len());
    }
    ensure!(
        all.answered > 0 && all.dropped > 0,
        "there was no load: {all:?}"
    );
    Ok(format!(
        "{} answered, {} dropped midway, none failed",
        all.answered, all.dropped
    ))
}

/// No page, row, slot or room of a worker, and no request of the router.
async fn nothing_held(fleet: &Fleet) -> Result<String> {
    for worker in &fleet.workers {
        quiet(&fleet.client, &worker.url()).await?;
    }
    eventually(SETTLED_WITHIN, async || {
        let metrics = Metrics::scrape(&fleet.client, &fleet.url("")).await?;
        ensure!(metrics.has(ROUTED), "the router has no {ROUTED}");
        let routed = metrics.sum(ROUTED, &[]);
        ensure!(routed == 0.0, "the router has {routed} requests");
        Ok(())
    })
    .await?;
    Ok("pages, rows, rooms, requests".to_owned())
}

// === impl Tally ===

impl Tally {
    async fn ask(&mut self, client: &Client, url: &str, rng: &mut StdRng) {
        let (request, events) = draw(rng);
        let ended = match events {
            None => whole_answer(client, url, &request)
                .await
                .map(|_| &mut self.answered),
            Some(events) => {
                let dropped = drop_midway(client, url, &request, events).await;
                dropped
                    .map(|()| &mut self.dropped)
                    .map_err(|why| format!("{why:#}"))
            }
        };
        match ended {
            Ok(count) => *count += 1,
            Err(why) => self.failures.push(why),
        }
    }
}

/// A request, and after how many events its stream is dropped, if it is.
fn draw(rng: &mut StdRng) -> (Value, Option<usize>) {
    let seed = u64::from(rng.random::<u32>());
    let short = ids(seed, rng.random_range(1..40));
    let mut request = match rng.random_range(0..5) {
        0 => greedy(&short, rng.random_range(1..32)),
        1 => greedy(
            &ids(seed, rng.random_range(300..1200)),
            rng.random_range(1..16),
        ),
        2 => sampled(&short, rng.random_range(60..160), seed),
        3 => {
            let mut request = sampled(&short, rng.random_range(8..48), seed);
            request["sampling_params"]["frequency_penalty"] = json!(0.5);
            request["sampling_params"]["presence_penalty"] = json!(0.3);
            request
        }
        _ => {
            let mut request = greedy(&short, 400);
            request["stream"] = json!(true);
            return (request, Some(rng.random_range(0..12)));
        }
    };
    request["stream"] = json!(rng.random_bool(0.5));
    (request, None)
}

/// # Errors
/// When the stream is refused, or ends or breaks before it is dropped.
async fn drop_midway(client: &Client, url: &str, request: &Value, events: usize) -> Result<()> {
    let mut stream = client.stream(url, request).await?;
    for nr in 0..events {
        let event = stream.next().await?;
        let event = event.with_context(|| format!("the stream ended after {nr} events"))?;
        ensure!(!event.contains("\"error\""), "error event: {event}");
    }
    Ok(())
}
