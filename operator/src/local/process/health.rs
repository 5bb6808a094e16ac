//! Follows the probes of a running process.

use super::Phase;
use super::keeper::Keeper;
use crate::local::probe::{ProbeSpec, ProbeTarget, Probes, Streak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How often a probe runs until it first succeeds, instead of its period: a GET on loopback
/// costs microseconds, and a start of a second should not look like two.
const EAGER_PERIOD: Duration = Duration::from_millis(25);

// === impl Keeper ===

impl Keeper {
    /// Follows the probes; returns why the container must be restarted.
    pub(super) async fn watch_probes(&self, probes: &Probes) -> String {
        let Probes {
            startup,
            readiness,
            liveness,
        } = probes;
        if let Some(startup) = startup
            && let Err(reason) = self.wait_started(startup).await
        {
            return reason;
        }
        self.publish(|state| state.started = true);
        tokio::select! {
            () = self.watch_readiness(readiness.as_ref()) => {
                unreachable!("readiness is watched until the process ends")
            }
            reason = self.watch_liveness(liveness.as_ref()) => reason,
        }
    }

    /// Whether a probe is answered in time.
    async fn ask(&self, probe: &ProbeSpec) -> bool {
        match &probe.target {
            ProbeTarget::Http(url) => self.client.probe(url, probe.timeout).await,
            ProbeTarget::Tcp(at) => {
                let connected = timeout(probe.timeout, TcpStream::connect(at)).await;
                matches!(connected, Ok(Ok(_)))
            }
        }
    }

    async fn wait_started(&self, startup: &ProbeSpec) -> Result<(), String> {
        let limit = startup.initial_delay + startup.period * startup.failures;
        let began = Instant::now();
        while !self.ask(startup).await {
            if began.elapsed() > limit {
                return Err(format!(
                    "{} did not answer within {limit:?}",
                    startup.target
                ));
            }
            sleep(EAGER_PERIOD).await;
        }
        Ok(())
    }

    async fn watch_readiness(&self, readiness: Option<&ProbeSpec>) {
        let Some(readiness) = readiness else {
            self.publish(|state| state.phase = Phase::Ready);
            return std::future::pending().await;
        };
        sleep(readiness.initial_delay).await;
        let mut streak = Streak::default();
        loop {
            let ok = self.ask(readiness).await;
            let ready = streak.answer(ok, readiness) == Some(true);
            self.publish(|state| {
                state.phase = if ready { Phase::Ready } else { Phase::Unready };
            });
            sleep(if ready {
                readiness.period
            } else {
                EAGER_PERIOD
            })
            .await;
        }
    }

    async fn watch_liveness(&self, liveness: Option<&ProbeSpec>) -> String {
        let Some(liveness) = liveness else {
            return std::future::pending().await;
        };
        sleep(liveness.initial_delay).await;
        let mut streak = Streak::default();
        loop {
            let ok = self.ask(liveness).await;
            if streak.answer(ok, liveness) == Some(false) {
                return format!("{} failed {} times", liveness.target, liveness.failures);
            }
            sleep(liveness.period).await;
        }
    }
}
