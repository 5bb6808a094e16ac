//! The local runtime with real agents and a real router: workers follow the file, no request fails.

use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{eventually, wait_healthy};
use pd_e2e::process::Process;
use pd_e2e::prompts::{greedy, ids};
use pd_e2e::{address, binaries};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for workers to appear, or to drain and leave.
const RECONCILED_WITHIN: Duration = Duration::from_secs(60);
const CLIENTS: u64 = 3;

pub(crate) fn deployment(prefill: u32, decode: u32) -> String {
    let model = binaries::tiny_model("tiny-llama");
    format!(
        "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata:
  name: edited
spec:
  model:
    servedModelName: tiny-llama
    source:
      hostPath:
        path: {}
  pools:
    prefill:
      replicas: {prefill}
    decode:
      replicas: {decode}
",
        model.display()
    )
}

/// States of the workers that `pd-operator local status` lists, such as `prefill Ready`.
async fn workers(cache: &Path) -> Result<Vec<String>> {
    let mut status = tokio::process::Command::new(binaries::binary("pd-operator"));
    status
        .args(["local", "status", "--json"])
        .env("PDSERVE_CACHE_DIR", cache);
    let states: Vec<Value> = serde_json::from_slice(&status.output().await?.stdout)?;
    let pods = states
        .first()
        .and_then(|s| s["pods"].as_array())
        .context("nothing runs")?;
    let text = |pod: &Value, key: &str| pod[key].as_str().unwrap_or_default().to_owned();
    let mut workers: Vec<String> = pods
        .iter()
        .map(|pod| format!("{} {}", text(pod, "component"), text(pod, "state")))
        .filter(|worker| !worker.starts_with("router"))
        .collect();
    workers.sort();
    Ok(workers)
}

async fn become_ready(cache: &Path, prefill: usize, decode: usize) -> Result<()> {
    let mut wanted = vec!["decode Ready"; decode];
    wanted.extend(vec!["prefill Ready"; prefill]);
    eventually(RECONCILED_WITHIN, || async {
        let found = workers(cache).await?;
        ensure!(found == wanted, "{found:?} instead of {wanted:?}");
        Ok(())
    })
    .await
}

/// Asks until stopped; gives the number of answers.
async fn keep_asking(base: &str, seed: u64, stop: &AtomicBool) -> Result<u64> {
    let client = Client::new();
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        let request = greedy(&ids(seed * 1000 + answered, 40), 24);
        let answer = client.post(&format!("{base}/generate"), &request).await?;
        ensure!(
            answer.status == 200,
            "request {answered}: {}",
            answer.text()
        );
        answered += 1;
    }
    Ok(answered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_follow_the_file_and_no_request_fails() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("deployment.yaml");
    std::fs::write(&file, deployment(1, 1))?;
    let listen = format!("{}:{}", address::fresh(), pd_protocol::ports::HTTP);
    let args = [
        "local",
        "-f",
        &file.display().to_string(),
        "--listen",
        &listen,
    ]
    .map(str::to_owned);
    let cache = folder.path().join("cache");
    let env = [("PDSERVE_CACHE_DIR", cache.to_str().context("a UTF-8 path")?)];
    let operator = binaries::binary("pd-operator");
    let mut operator = Process::spawn("operator", &operator, &args, &env)?;
    let base = format!("http://{listen}");
    wait_healthy(&Client::new(), &base, "/ready", &mut operator).await?;

    let stop = AtomicBool::new(false);
    let edits = async {
        for (prefill, decode) in [(2, 2), (1, 1)] {
            std::fs::write(
                &file,
                deployment(u32::try_from(prefill)?, u32::try_from(decode)?),
            )?;
            become_ready(&cache, prefill, decode).await?;
        }
        std::fs::write(&file, deployment(1, 1).replace("replicas", "replcas"))?;
        eventually(RECONCILED_WITHIN, || async {
            let log = operator.log();
            ensure!(
                log.contains("replcas"),
                "an invalid edit is not named:\n{log}"
            );
            Ok(())
        })
        .await?;
        become_ready(&cache, 1, 1).await
    };
    let clients = futures_util::future::try_join_all(
        (0..CLIENTS).map(|seed| keep_asking(&base, seed, &stop)),
    );
    let edits = async {
        let edited = edits.await;
        stop.store(true, Ordering::Relaxed);
        edited
    };
    let (answered, edited) = tokio::join!(clients, edits);
    edited.with_context(|| operator.log())?;
    let answered: u64 = answered.with_context(|| operator.log())?.iter().sum();
    eprintln!("replicas 1 -> 2 -> 1 under load: {answered} answered, 0 failed");

    operator.signal(Signal::INT)?;
    let status = operator.wait_exit(RECONCILED_WITHIN).await?;
    ensure!(status.success(), "the operator ended with {status}");
    Ok(())
}
