//! Faults over processes: every request completes elsewhere or ends with a reason, nothing hangs,
//! and pages, slots and rooms all return.

mod dead;
mod frozen;
mod gone;

use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{Fleet, FleetSpec, eventually, words};
use pd_e2e::load::{Load, Outcome};
use pd_e2e::metrics::Metrics;
use pd_e2e::prompts::{essence, greedy, ids};
use pd_e2e::quiet::quiet;
use pd_e2e::{address, binaries};
use pd_protocol::Role;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A dead process ends or moves its requests within this.
const DEAD_WITHIN: Duration = Duration::from_secs(2);
/// Heartbeat of these tests, 1 s × 2, one beat until the silence begins to count, and one second
/// for two busy cores.
const FROZEN_WITHIN: Duration = Duration::from_secs(4);
/// No request of these tests works longer than this on a busy machine.
const WORK_LIMIT: Duration = Duration::from_secs(120);

/// SmolLM2, slow enough on two cores that a fault hits requests in every stage.
fn smollm2(prefill: usize, decode: usize, transport: &str) -> FleetSpec {
    let mut spec = FleetSpec::new(binaries::smollm2());
    spec.prefill = prefill;
    spec.decode = decode;
    spec.agent_args = words(&format!(
        "--disaggregation-transfer-backend {transport} --disaggregation-heartbeat-interval 1 \
         --disaggregation-heartbeat-max-failure 2 --chunked-prefill-size 128 --disable-radix-cache"
    ));
    spec.router_args = words("--health-check-interval-secs 1 --health-check-timeout-secs 1");
    spec
}

fn streamed(prompt: &[u32], new_tokens: u32) -> Value {
    let mut request = greedy(prompt, new_tokens);
    request["stream"] = json!(true);
    request
}

fn start_load(fleet: &Fleet, count: u64, prompt_len: usize, new_tokens: u32) -> Load {
    let mut load = Load::default();
    for seed in 0..count {
        let request = streamed(&ids(seed, prompt_len), new_tokens);
        load.send(&fleet.client, &fleet.url("/generate"), request);
    }
    load
}

async fn metric(client: &Client, base: &str, name: &str, labels: &[&str]) -> Result<f64> {
    Ok(Metrics::scrape(client, base).await?.sum(name, labels))
}

/// Waits until a worker's metric has reached a value.
async fn reached(fleet: &Fleet, url: &str, name: &str, at_least: f64) -> Result<()> {
    eventually(WORK_LIMIT, || async {
        let value = metric(&fleet.client, url, name, &[]).await?;
        ensure!(value >= at_least, "{name} of {url} is {value}");
        Ok(())
    })
    .await
    .with_context(|| fleet.logs())
}

/// Two prefill workers and a decode worker under load, the first prefill worker in the middle of its
/// transfers: the load, that worker's URL, and how many requests the router has on it.
async fn mid_transfer(fleet: &Fleet, prompt_len: usize) -> Result<(Load, String, f64)> {
    let load = start_load(fleet, 8, prompt_len, 8);
    let victim = fleet.worker(Role::Prefill).url();
    reached(fleet, &victim, "pdserve_kv_transfer_bytes_total", 1.0).await?;
    let hit = routed(fleet, &victim).await?;
    ensure!(hit > 0.0, "{victim} has nothing to do");
    Ok((load, victim, hit))
}

/// Waits until the router has nothing in flight on a worker it had work on; gives how long it took.
async fn left(fleet: &Fleet, worker: &str, within: Duration) -> Result<Duration> {
    let fell = Instant::now();
    eventually(within, || async {
        let still = routed(fleet, worker).await?;
        ensure!(still == 0.0, "{still} requests are still with {worker}");
        Ok(())
    })
    .await
    .with_context(|| fleet.logs())?;
    Ok(fell.elapsed())
}

/// Requests that the router has in flight on a worker.
async fn routed(fleet: &Fleet, worker: &str) -> Result<f64> {
    let label = format!("worker=\"{worker}\"");
    metric(
        &fleet.client,
        &fleet.url(""),
        "pd_router_worker_requests",
        &[&label],
    )
    .await
}

/// Asserts that no worker of the fleet but `except` holds anything, and that the fleet serves.
async fn recovered(fleet: &Fleet, except: Option<usize>) -> Result<()> {
    for (index, worker) in fleet.workers.iter().enumerate() {
        if Some(index) != except {
            quiet(&fleet.client, &worker.url())
                .await
                .with_context(|| fleet.logs())?;
        }
    }
    let answer = fleet
        .client
        .post(&fleet.url("/generate"), &greedy(&ids(9, 30), 4))
        .await?;
    ensure!(
        answer.status == 200,
        "no longer serving: {}\n{}",
        answer.text(),
        fleet.logs()
    );
    Ok(())
}

/// Every outcome is an answer or carries a reason; gives the numbers of each.
fn count(outcomes: &[Outcome]) -> Result<(usize, usize)> {
    let failed: Vec<&String> = outcomes
        .iter()
        .filter_map(|o| o.result.as_ref().err())
        .collect();
    for reason in &failed {
        ensure!(
            !reason.contains("truncated"),
            "an answer was cut without a reason: {reason}"
        );
        ensure!(
            !reason.contains("stream broke"),
            "a stream broke without a reason: {reason}"
        );
    }
    Ok((outcomes.len() - failed.len(), failed.len()))
}
