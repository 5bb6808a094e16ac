//! The local runtime with real agents and a real router: workers follow the file, no request fails.

use anyhow::{Context, Result, ensure};
use http::Method;
use pd_e2e::client::Client;
use pd_e2e::fleet::{eventually, wait_healthy};
use pd_e2e::peer::Peer;
use pd_e2e::process::Process;
use pd_e2e::prompts::{greedy, ids};
use pd_e2e::{address, binaries};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for workers to appear, or to drain and leave.
const RECONCILED_WITHIN: Duration = Duration::from_secs(60);
const CLIENTS: u64 = 3;

pub(crate) fn deployment(name: &str, prefill: usize, decode: usize) -> String {
    let model = binaries::tiny_model("tiny-llama");
    format!(
        "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata:
  name: {name}
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

/// An operator that runs a file, with a cache of its own.
struct Local {
    file: PathBuf,
    cache: PathBuf,
    operator: Process,
    /// Of the router.
    base: String,
}

// === impl Local ===

impl Local {
    /// Writes `text` into a file of `folder` and runs it until it serves.
    async fn start(folder: &Path, text: &str) -> Result<Self> {
        let (file, cache) = (folder.join("deployment.yaml"), folder.join("cache"));
        std::fs::write(&file, text)?;
        let listen = format!("{}:{}", address::fresh(), pd_protocol::ports::HTTP);
        let args = [
            "local",
            "-f",
            &file.display().to_string(),
            "--listen",
            &listen,
        ];
        let args = args.map(str::to_owned);
        let env = [("PDSERVE_CACHE_DIR", cache.to_str().context("a UTF-8 path")?)];
        let program = binaries::binary("pd-operator");
        let mut operator = Process::spawn("operator", &program, &args, &env)?;
        let base = format!("http://{listen}");
        wait_healthy(&Client::new(), &base, "/ready", &mut operator).await?;
        Ok(Self {
            file,
            cache,
            operator,
            base,
        })
    }

    /// Interrupts it, and waits until all has drained.
    async fn stop(mut self) -> Result<()> {
        self.operator.signal(Signal::INT)?;
        let status = self.operator.wait_exit(RECONCILED_WITHIN).await?;
        ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }
}

/// The pods that `pd-operator local status` lists.
async fn pods(cache: &Path) -> Result<Vec<Value>> {
    let mut status = tokio::process::Command::new(binaries::binary("pd-operator"));
    status
        .args(["local", "status", "--json"])
        .env("PDSERVE_CACHE_DIR", cache);
    let states: Vec<Value> = serde_json::from_slice(&status.output().await?.stdout)?;
    let pods = states.first().and_then(|s| s["pods"].as_array());
    pods.cloned().context("nothing runs")
}

/// States of the workers among them, such as `prefill Ready`.
async fn workers(cache: &Path) -> Result<Vec<String>> {
    let pods = pods(cache).await?;
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
    let local = Local::start(folder.path(), &deployment("edited", 1, 1)).await?;
    let Local {
        file,
        cache,
        operator,
        base,
    } = &local;
    let stop = AtomicBool::new(false);
    let edits = async {
        for (prefill, decode) in [(2, 2), (1, 1)] {
            std::fs::write(file, deployment("edited", prefill, decode))?;
            become_ready(cache, prefill, decode).await?;
        }
        std::fs::write(
            file,
            deployment("edited", 1, 1).replace("replicas", "replcas"),
        )?;
        eventually(RECONCILED_WITHIN, || async {
            let log = operator.log();
            ensure!(
                log.contains("replcas"),
                "an invalid edit is not named:\n{log}"
            );
            Ok(())
        })
        .await?;
        become_ready(cache, 1, 1).await
    };
    let clients =
        futures_util::future::try_join_all((0..CLIENTS).map(|seed| keep_asking(base, seed, &stop)));
    let edits = async {
        let edited = edits.await;
        stop.store(true, Ordering::Relaxed);
        edited
    };
    let (answered, edited) = tokio::join!(clients, edits);
    edited.with_context(|| operator.log())?;
    let answered: u64 = answered.with_context(|| operator.log())?.iter().sum();
    eprintln!("replicas 1 -> 2 -> 1 under load: {answered} answered, 0 failed");
    local.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_serve_processes_of_their_deployment_and_no_strangers() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let local = Local::start(folder.path(), &deployment("guarded", 1, 1)).await?;
    let request = greedy(&ids(7, 40), 24);
    let generate = format!("{}/generate", local.base);
    let answer = Client::new().post(&generate, &request).await?;
    ensure!(
        answer.status == 200,
        "through the router: {}",
        answer.text()
    );
    let keys = local.cache.join("local/default.guarded.peer-keys");
    let peer = Peer::with_keys(&keys)?;
    let pods = pods(&local.cache).await?;
    let workers = pods.iter().filter(|pod| pod["component"] != "router");
    for url in workers.filter_map(|pod| pod["url"].as_str()) {
        let info = format!("{url}/server_info");
        let known = peer.send(Method::GET, &info, "").await?;
        ensure!(known.status == 200, "with the key: {}", known.text());
        let other = Peer::stranger()?.send(Method::GET, &info, "").await;
        let refused = format!("{:#}", other.err().context("another key is let in")?);
        eprintln!("{url}, another key: {refused}");
        let plain = info.replace("https:", "http:");
        ensure!(
            Client::new().get(&plain).await.is_err(),
            "plain HTTP is answered"
        );
        let anonymous = Client::trusting_all();
        let health = anonymous.get(&format!("{url}/health")).await?;
        ensure!(health.status == 200, "/health: {}", health.text());
        for path in ["generate", "v1/chat/completions", "server_info"] {
            let answer = anonymous.post(&format!("{url}/{path}"), &request).await?;
            ensure!(
                answer.status == 401,
                "/{path}: {} {}",
                answer.status,
                answer.text()
            );
            eprintln!(
                "{url}/{path}, no certificate: {} {}",
                answer.status,
                answer.text()
            );
        }
    }
    local.stop().await
}
