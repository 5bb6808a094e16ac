//! Faults over processes: every request completes elsewhere or ends with a reason, nothing hangs,
//! and pages, slots and rooms all return.

use crate::prompts::{essence, greedy, ids};
use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{Fleet, FleetSpec, eventually};
use pd_e2e::load::{Load, Outcome};
use pd_e2e::metrics::Metrics;
use pd_e2e::{address, binaries};
use pd_protocol::workers::Role;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A dead process ends or moves its requests within this.
const DEAD_WITHIN: Duration = Duration::from_secs(2);
/// Heartbeat of these tests: 1 s × 2, and the time to notice.
const FROZEN_WITHIN: Duration = Duration::from_secs(5);
/// No request of these tests works longer than this on a busy machine.
const WORK_LIMIT: Duration = Duration::from_secs(120);
/// Everything a request held is back this soon after its end.
const QUIET_WITHIN: Duration = Duration::from_secs(10);

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

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

/// Asserts that a worker holds nothing: no page, row, slot or room.
async fn quiet(client: &Client, url: &str) -> Result<()> {
    eventually(QUIET_WITHIN, || async {
        let metrics = Metrics::scrape(client, url).await?;
        for state in ["locked", "held", "quarantined"] {
            let label = format!("state=\"{state}\"");
            let pages = metrics.sum("pdserve_kv_pages", &[&label]);
            ensure!(pages == 0.0, "{pages} pages are {state} on {url}");
        }
        for name in [
            "pdserve_req_pool_rows_used",
            "pdserve_metadata_rows_used",
            "pdserve_rooms_in_flight",
            "pdserve_num_running_reqs",
            "pdserve_num_queue_reqs",
        ] {
            ensure!(metrics.has(name), "{url} has no {name}");
            let value = metrics.sum(name, &[]);
            ensure!(value == 0.0, "{name} of {url} is {value}");
        }
        Ok(())
    })
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_prefill_loses_no_request() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut fleet = smollm2(2, 1, transport).start().await?;
        let load = start_load(&fleet, 8, 700, 8);
        let victim = fleet.worker(Role::Prefill).url();
        reached(&fleet, &victim, "pdserve_kv_transfer_bytes_total", 1.0).await?;
        fleet
            .worker_mut(Role::Prefill)
            .process
            .signal(Signal::KILL)?;
        let outcomes = load
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?;
        let (answered, failed) = count(&outcomes)?;
        eprintln!(
            "kill -9 prefill mid-transfer over {transport}: {answered} answered, {failed} failed"
        );
        ensure!(
            failed == 0,
            "nothing had reached a client yet: {outcomes:?}\n{}",
            fleet.logs()
        );
        recovered(&fleet, Some(0)).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_decode_ends_its_streams_with_a_reason_within_two_seconds() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut fleet = smollm2(1, 2, transport).start().await?;
        let loaded = Instant::now();
        let load = start_load(&fleet, 6, 60, 400);
        let victim = fleet.worker(Role::Decode).url();
        reached(&fleet, &victim, "pdserve_generation_tokens_total", 20.0).await?;
        let killed_at = loaded.elapsed();
        fleet
            .worker_mut(Role::Decode)
            .process
            .signal(Signal::KILL)?;
        let outcomes = load
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?;
        let (answered, failed) = count(&outcomes)?;
        let slowest = outcomes
            .iter()
            .filter(|o| o.result.is_err())
            .map(|o| o.took)
            .max();
        eprintln!(
            "kill -9 decode mid-stream over {transport}: {answered} answered, {failed} failed"
        );
        ensure!(
            failed > 0 && answered > 0,
            "one of two decode workers died: {outcomes:?}"
        );
        let bound = killed_at + DEAD_WITHIN;
        ensure!(
            slowest.is_some_and(|took| took < bound),
            "killed at {killed_at:?}: {slowest:?}"
        );
        let victim = fleet.workers.iter().position(|w| w.role == Role::Decode);
        recovered(&fleet, victim).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_prefill_is_left_within_the_heartbeat_and_its_late_writes_do_no_harm() -> Result<()>
{
    for transport in ["shm", "tcp"] {
        let reference = {
            let spec = smollm2(1, 1, transport);
            let worker = spec.start_worker(Role::Null, address::fresh()).await?;
            let mut answers = Vec::new();
            for seed in 0..8 {
                let url = format!("{}/generate", worker.url());
                answers.push(
                    Client::new()
                        .post(&url, &greedy(&ids(seed, 500), 8))
                        .await?
                        .json()?,
                );
            }
            answers
        };
        let fleet = smollm2(2, 1, transport).start().await?;
        let load = start_load(&fleet, 8, 500, 8);
        let victim = fleet.worker(Role::Prefill).url();
        reached(&fleet, &victim, "pdserve_kv_transfer_bytes_total", 1.0).await?;
        fleet.worker(Role::Prefill).process.signal(Signal::STOP)?;
        let frozen = Instant::now();
        let outcomes = load
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?;
        let (answered, failed) = count(&outcomes)?;
        eprintln!("SIGSTOP prefill over {transport}: {answered} answered, {failed} failed");
        let others = Duration::from_secs(20).saturating_sub(frozen.elapsed());
        // The same pages are reused while the frozen writer sleeps, then it wakes.
        let mut again = start_load(&fleet, 4, 500, 8);
        tokio::time::sleep(others).await;
        fleet.worker(Role::Prefill).process.signal(Signal::CONT)?;
        for seed in 4..8 {
            let request = streamed(&ids(seed, 500), 8);
            again.send(&fleet.client, &fleet.url("/generate"), request);
        }
        for outcome in again
            .outcomes(WORK_LIMIT)
            .await
            .with_context(|| fleet.logs())?
        {
            let answer = outcome.result.map_err(anyhow::Error::msg)?;
            let expected = &reference[outcome.index];
            ensure!(
                essence(&answer)["output_ids"] == essence(expected)["output_ids"],
                "request {} differs after the writer woke\n{}",
                outcome.index,
                fleet.logs()
            );
        }
        recovered(&fleet, None).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_router_leaves_no_orphans() -> Result<()> {
    let mut fleet = smollm2(1, 1, "shm").start().await?;
    let load = start_load(&fleet, 4, 300, 400);
    let decode = fleet.worker(Role::Decode).url();
    reached(&fleet, &decode, "pdserve_generation_tokens_total", 10.0).await?;
    fleet.router.signal(Signal::KILL)?;
    for outcome in load.outcomes(DEAD_WITHIN).await? {
        ensure!(outcome.result.is_err(), "the router is dead: {outcome:?}");
    }
    for worker in &fleet.workers {
        quiet(&fleet.client, &worker.url())
            .await
            .with_context(|| fleet.logs())?;
    }
    fleet.router = fleet
        .spec
        .start_router(&fleet.workers, fleet.router_address)
        .await?;
    recovered(&fleet, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_frees_both_sides() -> Result<()> {
    let fleet = smollm2(1, 1, "tcp").start().await?;
    let (prefill, decode) = (
        fleet.worker(Role::Prefill).url(),
        fleet.worker(Role::Decode).url(),
    );

    // Mid-prefill: 2,000 tokens in chunks of 128 are far from done when the client leaves.
    let leaving = tokio::spawn({
        let (client, url) = (fleet.client.clone(), fleet.url("/generate"));
        async move { client.post(&url, &greedy(&ids(1, 2000), 8)).await }
    });
    reached(&fleet, &prefill, "pdserve_num_steps_total", 2.0).await?;
    leaving.abort();
    for url in [&prefill, &decode] {
        quiet(&fleet.client, url)
            .await
            .context("left mid-prefill")
            .with_context(|| fleet.logs())?;
    }

    // Mid-decode: after three tokens of four hundred.
    let request = streamed(&ids(2, 40), 400);
    let mut stream = fleet
        .client
        .stream(&fleet.url("/generate"), &request)
        .await?;
    for _ in 0..3 {
        ensure!(stream.next().await?.is_some(), "the stream ended early");
    }
    drop(stream);
    for url in [&prefill, &decode] {
        quiet(&fleet.client, url)
            .await
            .context("left mid-decode")
            .with_context(|| fleet.logs())?;
    }
    recovered(&fleet, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_requests_with_ten_percent_injected_failures() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
        spec.prefill = 2;
        spec.decode = 2;
        spec.agent_args = words(&format!("--disaggregation-transfer-backend {transport}"));
        spec.env = vec![(pd_protocol::labels::ENV_TEST_FAILURE_PROB, "0.1".to_owned())];
        spec.router_args = words("--disable-circuit-breaker");
        let fleet = spec.start().await?;
        let (mut answered, mut failed) = (0, 0);
        for wave in 0..10_u32 {
            let mut load = Load::default();
            for i in 0..50_u64 {
                let request = greedy(&ids(i, 20 + 2 * usize::try_from(i)?), 12 + wave);
                load.send(&fleet.client, &fleet.url("/generate"), request);
            }
            let outcomes = load
                .outcomes(WORK_LIMIT)
                .await
                .with_context(|| fleet.logs())?;
            let (a, f) = count(&outcomes)?;
            (answered, failed) = (answered + a, failed + f);
        }
        eprintln!("10 % injected failures over {transport}: {answered} answered, {failed} failed");
        ensure!(
            answered + failed == 500 && answered >= 490,
            "retries should save nearly all"
        );
        for worker in &fleet.workers {
            quiet(&fleet.client, &worker.url())
                .await
                .with_context(|| fleet.logs())?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_back_on_its_address_is_a_new_one() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
        spec.agent_args = words(&format!("--disaggregation-transfer-backend {transport}"));
        spec.router_args = words("--health-check-interval-secs 1");
        let mut fleet = spec.start().await?;
        recovered(&fleet, None).await?;
        for _ in 0..3 {
            let address = fleet.worker(Role::Prefill).address;
            fleet.worker(Role::Prefill).process.signal(Signal::KILL)?;
            fleet
                .worker_mut(Role::Prefill)
                .process
                .wait_exit(DEAD_WITHIN)
                .await?;
            let spec = fleet.spec.clone();
            *fleet.worker_mut(Role::Prefill) = spec.start_worker(Role::Prefill, address).await?;
            eventually(FROZEN_WITHIN, || async {
                let request = greedy(&ids(5, 40), 8);
                let answer = fleet.client.post(&fleet.url("/generate"), &request).await?;
                ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
                Ok(())
            })
            .await
            .with_context(|| fleet.logs())?;
        }
        recovered(&fleet, None).await?;
    }
    Ok(())
}
