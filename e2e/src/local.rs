//! `pd-operator local` with a file of its own, as a user has it.

use crate::client::Client;
use crate::fleet::eventually;
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::process::Process;
use crate::{address, binaries};
use anyhow::{Context, Result, ensure};
use hyper::Method;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longest time for workers to appear, or to drain and leave.
pub const RECONCILED_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An operator that runs a file, with a cache of its own.
pub struct Local {
    pub file: PathBuf,
    pub cache: PathBuf,
    pub operator: Process,
    /// Of the router.
    pub base: String,
}

// === impl Local ===

impl Local {
    /// Writes `text` into a file of `folder` and runs it until it serves.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub async fn start(folder: &Path, text: &str, limit: Duration) -> Result<Self> {
        Self::start_with(folder, text, &[], limit).await
    }

    /// The same with an environment, which its processes inherit.
    ///
    /// # Errors
    /// As [`Local::start`].
    pub async fn start_with(
        folder: &Path,
        text: &str,
        env: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Self> {
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
        let mut env = env.to_vec();
        env.push(("PDSERVE_CACHE_DIR", cache.to_str().context("a UTF-8 path")?));
        let program = binaries::binary("pd-operator");
        let operator = Process::spawn("operator", &program, &args, &env)?;
        let mut local = Self {
            file,
            cache,
            operator,
            base: format!("http://{listen}"),
        };
        local.wait_ready(limit).await?;
        Ok(local)
    }

    async fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        let (client, url) = (Client::new(), format!("{}/ready", self.base));
        let began = Instant::now();
        loop {
            self.operator.check_alive()?;
            let answer = client.get(&url).await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            let log = || format!("{url} is not 200 after {limit:?}:\n{}", self.operator.log());
            ensure!(began.elapsed() < limit, log());
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Interrupts it, and waits until all has drained.
    ///
    /// # Errors
    /// When it fails, or takes too long.
    pub async fn stop(mut self) -> Result<()> {
        self.operator.signal(Signal::INT)?;
        let status = self.operator.wait_exit(RECONCILED_WITHIN).await?;
        ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }

    /// The pods that `pd-operator local status` lists.
    ///
    /// # Errors
    /// When nothing runs.
    pub async fn pods(&self) -> Result<Vec<Value>> {
        let status = self.status().await?;
        status["pods"].as_array().cloned().context("nothing runs")
    }

    /// The autoscaler's last decisions, newest first.
    ///
    /// # Errors
    /// When nothing runs.
    pub async fn decisions(&self) -> Result<Vec<Value>> {
        let status = self.status().await?;
        let decisions = status["scaling"]["decisions"].as_array();
        decisions.cloned().context("nothing runs")
    }

    /// What a worker says of itself, to peers only if it has a key.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self, url: &str) -> Result<Metrics> {
        if url.starts_with("http:") {
            return Metrics::scrape(&Client::new(), url).await;
        }
        let files = std::fs::read_dir(self.cache.join("local"))?;
        let mut files = files.filter_map(|file| Some(file.ok()?.path()));
        let keys = files.find(|file| file.extension().is_some_and(|is| is == "peer-keys"));
        let peer = Peer::with_keys(&keys.context("the deployment's keys")?)?;
        let answer = peer
            .send(Method::GET, &format!("{url}/metrics"), "")
            .await?;
        Metrics::parse(&answer.text())
    }

    async fn status(&self) -> Result<Value> {
        let mut status = tokio::process::Command::new(binaries::binary("pd-operator"));
        status
            .args(["local", "status", "--json"])
            .env("PDSERVE_CACHE_DIR", &self.cache);
        let states: Vec<Value> = serde_json::from_slice(&status.output().await?.stdout)?;
        states.first().cloned().context("nothing runs")
    }

    /// Waits for so many workers of each pool, all of them ready.
    ///
    /// # Errors
    /// When it takes longer than `limit`.
    pub async fn become_ready(&self, prefill: usize, decode: usize, limit: Duration) -> Result<()> {
        let mut wanted = vec!["decode Ready"; decode];
        wanted.extend(vec!["prefill Ready"; prefill]);
        eventually(limit, || async {
            let found = self.workers().await?;
            ensure!(found == wanted, "{found:?} instead of {wanted:?}");
            Ok(())
        })
        .await
    }

    /// States of the workers, such as `prefill Ready`.
    async fn workers(&self) -> Result<Vec<String>> {
        let text = |pod: &Value, key: &str| pod[key].as_str().unwrap_or_default().to_owned();
        let pods = self.pods().await?;
        let pods = pods.iter();
        let mut workers: Vec<String> = pods
            .map(|pod| format!("{} {}", text(pod, "component"), text(pod, "state")))
            .filter(|worker| !worker.starts_with("router"))
            .collect();
        workers.sort();
        Ok(workers)
    }
}
