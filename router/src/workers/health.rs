//! Health checks: one task per worker probes it, quickly while it is not ready or under
//! suspicion, at leisure while it is well, and notifies the registry.
//!
//! A probe asks the health endpoint, then what the worker is, so that a restarted one is read again. The first probe that succeeds makes a worker ready; one that was lost again needs
//! several in a row.

pub(crate) mod probe;

pub(crate) use probe::{ProbeError, Prober};

use super::info::WorkerInfo;
use super::registry::Registry;
use super::worker::Worker;
use crate::clock::{Instant, sleep};
use http::uri::PathAndQuery;
use pd_protocol::Backoff;
use std::sync::Arc;
use std::time::Duration;

/// First pause between probes of a worker that is not ready.
const UNREADY_INTERVAL_FIRST: Duration = Duration::from_millis(50);
/// A pause is at most 51 s, also where the flag allows more.
const UNREADY_DOUBLINGS_MAX: u32 = 10;
/// Pause between probes of a ready worker that missed one.
const SUSPECT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub(crate) struct HealthConfig {
    pub(crate) endpoint: PathAndQuery,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) failures_to_unready: u32,
    pub(crate) successes_to_ready: u32,
    /// Pauses between probes of a worker that is not ready double up to this.
    pub(crate) unready_interval_max: Duration,
    /// After this long without having been ready, a worker is reported in the log.
    pub(crate) startup_timeout: Duration,
}

/// What the probes so far say: a pure state machine.
#[derive(Debug)]
struct Verdict {
    is_ready: bool,
    was_ready: bool,
    successes: u32,
    failures: u32,
}

/// What one probe changes.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Ready,
    Unready,
    None,
}

/// Probes `worker` until it is removed.
pub(crate) async fn watch(registry: Arc<Registry>, worker: Arc<Worker>, prober: Arc<Prober>) {
    let removed = worker.removed.clone();
    removed
        .run_until_cancelled(probe_forever(&registry, &worker, &prober))
        .await;
}

async fn probe_forever(registry: &Registry, worker: &Arc<Worker>, prober: &Prober) {
    let config = &prober.config;
    let mut verdict = Verdict::new();
    let mut known = None;
    let started = Instant::now();
    let mut overdue_reported = false;
    let mut stranger_reported = false;
    loop {
        let report = prober.probe(worker, known.as_ref()).await;
        if report.as_ref().is_err_and(ProbeError::is_local) {
            // No verdict: the worker was not asked.
            sleep(verdict.pause(config)).await;
            continue;
        }
        match &report {
            Ok(_) => {
                registry.clear_suspicion(worker);
                stranger_reported = false;
            }
            Err(error) if error.is_of_strangers() && !stranger_reported => {
                stranger_reported = true;
                tracing::warn!(worker = worker.id(), %error, "worker is not a peer");
            }
            Err(_) => {}
        }
        let change = verdict.settle(report.is_ok(), config);
        let is_unanswered = report.as_ref().is_err_and(ProbeError::is_silence);
        worker.set_silent(is_unanswered && !verdict.is_ready);
        known = match &report {
            Ok(info) => Some(info.clone()),
            Err(_) => known.filter(|_| verdict.is_ready),
        };
        apply(registry, worker, &verdict, change, report);
        worker.probed.cancel();
        if !verdict.was_ready && !overdue_reported && started.elapsed() > config.startup_timeout {
            overdue_reported = true;
            tracing::error!(
                worker = worker.id(),
                "worker not ready within the startup timeout"
            );
        }
        tokio::select! {
            () = sleep(verdict.pause(config)) => {}
            () = worker.suspected.notified() => {}
        }
    }
}

fn apply(
    registry: &Registry,
    worker: &Arc<Worker>,
    verdict: &Verdict,
    change: Change,
    report: Result<WorkerInfo, ProbeError>,
) {
    match (change, report) {
        (Change::Ready, Ok(info)) => {
            tracing::info!(worker = worker.id(), models = ?info.models, "worker is ready");
            registry.set_ready(worker, info);
        }
        (Change::Unready, Err(error)) => {
            tracing::warn!(worker = worker.id(), %error, "worker is no longer ready");
            registry.set_unready(worker, error.to_string());
        }
        (_, Ok(info)) if verdict.is_ready => registry.set_ready(worker, info),
        (_, Err(error)) if !verdict.is_ready => registry.set_unready(worker, error.to_string()),
        (_, Ok(_) | Err(_)) => {}
    }
}

// === impl Verdict ===

impl Verdict {
    fn new() -> Self {
        Self {
            is_ready: false,
            was_ready: false,
            successes: 0,
            failures: 0,
        }
    }

    fn settle(&mut self, succeeded: bool, config: &HealthConfig) -> Change {
        if succeeded {
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
            let needed = if self.was_ready {
                config.successes_to_ready
            } else {
                1
            };
            if self.is_ready || self.successes < needed {
                return Change::None;
            }
            self.is_ready = true;
            self.was_ready = true;
            return Change::Ready;
        }
        self.successes = 0;
        self.failures = self.failures.saturating_add(1);
        if self.is_ready && self.failures >= config.failures_to_unready {
            self.is_ready = false;
            return Change::Unready;
        }
        Change::None
    }

    /// How long to wait before the next probe.
    fn pause(&self, config: &HealthConfig) -> Duration {
        match (self.is_ready, self.failures) {
            (true, 0) => config.interval,
            (true, _) => SUSPECT_INTERVAL.min(config.interval),
            (false, failures) => {
                let ceiling = config.unready_interval_max;
                let backoff = Backoff::doubling(UNREADY_INTERVAL_FIRST, ceiling);
                backoff.delay(failures.min(UNREADY_DOUBLINGS_MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests;
