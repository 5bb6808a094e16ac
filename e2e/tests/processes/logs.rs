//! Logs that cannot be written, under all three programs: a full disk, a pipe whose reader has gone, and a full pipe
//! whose reader reads nothing. They serve on, with the same tokens, say that they are well, count what they dropped,
//! and end at SIGTERM.

use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{Fleet, FleetSpec, Worker, eventually, wait_healthy, words};
use pd_e2e::metrics::Metrics;
use pd_e2e::process::{LogTo, Process};
use pd_e2e::prompts::{essence, greedy, ids};
use pd_e2e::{address, binaries};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const UNWRITABLE: [LogTo; 3] = [LogTo::FullDisk, LogTo::ClosedPipe, LogTo::UnreadPipe];
/// Requests of this test take milliseconds; one whose log waits for a reader never ends.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// Drains are empty.
const ENDED_WITHIN: Duration = Duration::from_secs(60);
const REQUESTS: usize = 8;

fn spec() -> FleetSpec {
    FleetSpec::new(binaries::tiny_model("tiny-llama"))
}

async fn ask(client: &Client, url: &str, body: &Value) -> Result<Value> {
    let answer = timeout(ANSWERED_WITHIN, client.post(url, body)).await;
    let answer = answer.context("no answer")??;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    Ok(essence(&answer.json()?))
}

/// What the tokens must be: those of a fleet whose log is read.
async fn expected(request: &Value) -> Result<Value> {
    let fleet = spec().start().await?;
    ask(&fleet.client, &fleet.url("/generate"), request).await
}

/// Requests that are answered, and refused, and a stranger on every worker: each of them is logged.
async fn serves(fleet: &Fleet, request: &Value, expected: &Value) -> Result<()> {
    let url = fleet.url("/generate");
    for _ in 0..REQUESTS {
        let answer = ask(&fleet.client, &url, request).await?;
        ensure!(answer == *expected, "{answer} instead of {expected}");
        let mut wrong = request.clone();
        wrong["sampling_params"]["max_new_tokens"] = json!(-1);
        let refused = timeout(ANSWERED_WITHIN, fleet.client.post(&url, &wrong)).await??;
        ensure!(refused.status == 400, "{}", refused.status);
    }
    for worker in &fleet.workers {
        for path in ["/health", "/health_generate"] {
            let url = format!("{}{path}", worker.url());
            let asked = timeout(ANSWERED_WITHIN, fleet.client.get(&url)).await??;
            ensure!(asked.status == 200, "{url}: {}", asked.status);
        }
    }
    let ready = fleet.client.get(&fleet.url("/ready")).await?;
    ensure!(ready.status == 200, "/ready: {}", ready.status);
    Ok(())
}

/// What it drops is counted.
async fn counts(client: &Client, url: &str, name: &str) -> Result<()> {
    eventually(ANSWERED_WITHIN, || async {
        let metrics = Metrics::scrape(client, url).await?;
        ensure!(metrics.sum(name, &[]) > 0.0, "{url} dropped nothing");
        Ok(())
    })
    .await
}

async fn ends(process: &mut Process) -> Result<()> {
    process.check_alive()?;
    process.signal(Signal::TERM)?;
    let status = process.wait_exit(ENDED_WITHIN).await?;
    ensure!(status.success(), "{} ended with {status}", process.name);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_written_stops_no_request_of_a_fleet() -> Result<()> {
    let request = greedy(&ids(1, 40), 8);
    let expected = expected(&request).await?;
    for log_to in UNWRITABLE {
        let mut spec = spec();
        spec.log_to = log_to;
        spec.agent_args = words("--log-level trace");
        spec.router_args = words("--log-level trace");
        let mut fleet = spec.start().await.with_context(|| format!("{log_to:?}"))?;
        serves(&fleet, &request, &expected)
            .await
            .with_context(|| format!("{log_to:?}"))?;
        let (client, url) = (&fleet.client, fleet.url(""));
        // What a pipe does not take waits first; that this is bounded is proven with the bound.
        if log_to != LogTo::UnreadPipe {
            counts(client, &url, "pd_router_log_lines_dropped_total").await?;
            for worker in &fleet.workers {
                counts(client, &worker.url(), "pdserve_log_lines_dropped_total").await?;
            }
        }
        ends(&mut fleet.router).await?;
        for Worker { process, .. } in &mut fleet.workers {
            ends(process).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_whose_output_is_not_taken_serves_and_drains() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("deployment.yaml");
    std::fs::write(&file, super::local::deployment("logs", 1, 1))?;
    let request = greedy(&ids(1, 40), 8);
    let expected = expected(&request).await?;
    for (nr, log_to) in UNWRITABLE.into_iter().enumerate() {
        let listen = format!("{}:{}", address::fresh(), pd_protocol::ports::HTTP);
        let file = file.display().to_string();
        let args = ["local", "-f", &file, "--listen", &listen].map(str::to_owned);
        let cache = folder.path().join(format!("cache-{nr}"));
        let cache = cache.to_str().context("a UTF-8 path")?;
        let env = [("PDSERVE_CACHE_DIR", cache), ("RUST_LOG", "trace")];
        let operator = binaries::binary("pd-operator");
        let mut operator = Process::spawn_logging("operator", &operator, &args, &env, log_to)?;
        let base = format!("http://{listen}");
        let client = Client::new();
        wait_healthy(&client, &base, "/ready", &mut operator)
            .await
            .with_context(|| format!("{log_to:?}"))?;
        for _ in 0..REQUESTS {
            let answer = ask(&client, &format!("{base}/generate"), &request).await?;
            ensure!(answer == expected, "{log_to:?}: {answer}");
        }
        ends(&mut operator).await?;
    }
    Ok(())
}
