//! The local runtime with real agents and a real router: workers follow the file, no request fails.

use anyhow::{Context, Result, ensure};
use http::Method;
use pd_e2e::binaries;
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use pd_e2e::local::{Local, RECONCILED_WITHIN};
use pd_e2e::peer::Peer;
use pd_e2e::prompts::{greedy, ids};
use std::sync::atomic::{AtomicBool, Ordering};

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
    let local = Local::start(
        folder.path(),
        &deployment("edited", 1, 1),
        RECONCILED_WITHIN,
    )
    .await?;
    let Local {
        file,
        operator,
        base,
        ..
    } = &local;
    let stop = AtomicBool::new(false);
    let edits = async {
        for (prefill, decode) in [(2, 2), (1, 1)] {
            std::fs::write(file, deployment("edited", prefill, decode))?;
            local
                .become_ready(prefill, decode, RECONCILED_WITHIN)
                .await?;
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
        local.become_ready(1, 1, RECONCILED_WITHIN).await
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
    let local = Local::start(
        folder.path(),
        &deployment("guarded", 1, 1),
        RECONCILED_WITHIN,
    )
    .await?;
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
    let pods = local.pods().await?;
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
