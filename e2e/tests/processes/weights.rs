//! New weights for a deployment that serves: an edit of its file, under load. No request fails, no process restarts, and each client
//! sees the version change once.

use crate::local::deployment;
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries;
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use pd_e2e::local::{Local, RECONCILED_WITHIN};
use pd_e2e::prompts::{greedy, ids};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CLIENTS: u64 = 4;

/// Bytes of a value, and how many values lie between two whose sign is changed.
const VALUE: usize = 4;
const EVERY: usize = 3;

/// `tiny-llama` as `one`, with other weights as `two`, and another network as `other`.
fn checkpoints(folder: &Path) -> Result<()> {
    for (name, model, changed) in [
        ("one", "tiny-llama", false),
        ("two", "tiny-llama", true),
        ("other", "tiny-qwen3", false),
    ] {
        let to = folder.join(name);
        std::fs::create_dir_all(&to)?;
        for entry in std::fs::read_dir(binaries::tiny_model(model))? {
            let entry = entry?;
            let mut bytes = std::fs::read(entry.path())?;
            if changed && entry.file_name() == "model.safetensors" {
                let header = u64::from_le_bytes(bytes[..8].try_into()?);
                let data = 8 + usize::try_from(header)?;
                let signs = bytes[data..].iter_mut().skip(VALUE - 1);
                signs.step_by(VALUE * EVERY).for_each(|byte| *byte ^= 0x80);
            }
            std::fs::write(to.join(entry.file_name()), bytes)?;
        }
    }
    Ok(())
}

fn with_weights(models: &Path, version: &str) -> String {
    let model = binaries::tiny_model("tiny-llama").display().to_string();
    let weights = "  pools:\n    prefill:\n      replicas: 1";
    let given = format!("    weights:\n      path: {version}\n{weights}");
    deployment("retrained", 1, 2)
        .replace(&model, &models.display().to_string())
        .replace(weights, &given)
}

/// Which weights answered, and what.
async fn generated(client: &Client, base: &str) -> Result<(String, Value)> {
    let url = format!("{base}/generate");
    let answer = client.post(&url, &greedy(&ids(11, 40), 24)).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    let answer = answer.json()?;
    let version = answer["meta_info"]["weight_version"].as_str();
    let version = version.context("an answer without a version")?.to_owned();
    Ok((version, answer["output_ids"].clone()))
}

async fn keep_asking(base: String, stop: Arc<AtomicBool>) -> Result<Vec<(String, Value)>> {
    let client = Client::new();
    let mut answers = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let answer = generated(&client, &base).await;
        answers.push(answer.with_context(|| format!("request {}", answers.len()))?);
    }
    Ok(answers)
}

/// Waits until the operator has said it.
async fn said(local: &Local, words: &str) -> Result<()> {
    eventually(RECONCILED_WITHIN, || async {
        let log = local.operator.log();
        ensure!(log.contains(words), "not said: {words}\n{log}");
        Ok(())
    })
    .await
}

/// A deployment that serves `one` of the checkpoints in the folder that comes with it.
async fn serving_one(folder: &Path) -> Result<(PathBuf, Local)> {
    let models = folder.join("models");
    checkpoints(&models)?;
    let text = with_weights(&models, "one");
    let local = Local::start(folder, &text, RECONCILED_WITHIN).await?;
    local.become_ready(1, 2, RECONCILED_WITHIN).await?;
    Ok((models, local))
}

/// Edits the file until a client gets answers of the version.
async fn change(local: &Local, models: &Path, version: &str) -> Result<(String, Value)> {
    std::fs::write(&local.file, with_weights(models, version))?;
    let client = Client::new();
    eventually(RECONCILED_WITHIN, || async {
        let answer = generated(&client, &local.base).await?;
        ensure!(answer.0 == version, "{} still serves", answer.0);
        Ok(())
    })
    .await?;
    local.become_ready(1, 2, RECONCILED_WITHIN).await?;
    generated(&client, &local.base).await
}

async fn pids(local: &Local) -> Result<Vec<Value>> {
    let pods = local.pods().await?;
    Ok(pods.iter().map(|pod| pod["pid"].clone()).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_change_under_load_and_no_request_fails() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (models, local) = serving_one(folder.path()).await?;
    let before = pids(&local).await?;
    let one = generated(&Client::new(), &local.base).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let ask = || tokio::spawn(keep_asking(local.base.clone(), Arc::clone(&stop)));
    let clients: Vec<_> = (0..CLIENTS).map(|_| ask()).collect();

    let two = change(&local, &models, "two").await?;
    ensure!(one.1 != two.1, "other weights, the same tokens");
    std::fs::write(&local.file, with_weights(&models, "other"))?;
    said(&local, "is of another network").await?;
    let kept = generated(&Client::new(), &local.base).await?;
    ensure!(kept == two, "refused weights changed {kept:?}");
    let again = change(&local, &models, "one").await?;
    ensure!(again == one, "{again:?} instead of {one:?}");
    stop.store(true, Ordering::Relaxed);

    let mut answered = 0;
    for client in clients {
        let answers = client.await?.with_context(|| local.operator.log())?;
        answered += answers.len();
        let mut runs: Vec<&(String, Value)> = answers.iter().collect();
        runs.dedup();
        ensure!(runs == [&one, &two, &one], "{runs:?}");
    }
    let after = pids(&local).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    eprintln!("weights one -> two -> one under load: {answered} answered, 0 failed");
    local.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_restarts_with_old_weights_is_given_the_new_ones() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (models, local) = serving_one(folder.path()).await?;
    let two = change(&local, &models, "two").await?;
    let pods = local.pods().await?;
    let prefill = pods.iter().find(|pod| pod["component"] == "prefill");
    let pid = prefill.and_then(|pod| pod["pid"].as_i64());
    let pid = i32::try_from(pid.context("a prefill worker")?)?;
    kill_process(Pid::from_raw(pid).context("a pid")?, Signal::KILL)?;
    eventually(RECONCILED_WITHIN, || async {
        let pods = local.pods().await?;
        let again = pods.iter().find(|pod| pod["component"] == "prefill");
        let again = again.context("a prefill worker")?;
        ensure!(again["pid"] != pid && again["state"] == "Ready", "{again}");
        let answer = generated(&Client::new(), &local.base).await?;
        ensure!(answer == two, "{answer:?}");
        Ok(())
    })
    .await?;
    local.stop().await
}
