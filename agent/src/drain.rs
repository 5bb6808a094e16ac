//! Shutdown: on SIGTERM the process refuses new requests, finishes those in flight, and exits with
//! 0. At the deadline, or on a second signal, the remaining ones end with a retriable error.

use crate::service::{App, Wish};
use anyhow::{Context, Result};
use pd_protocol::workers::DrainState;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Interval of polls while requests are in flight; much shorter than a token takes to read.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The signals that end the process, caught from construction on.
#[derive(Debug)]
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

/// How the requests in flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Each got its whole answer.
    Finished,
    /// The deadline passed, or a second signal came.
    CutOff,
}

// === impl EndSignals ===

impl EndSignals {
    /// # Errors
    /// When signal handlers cannot be installed.
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Refuses new requests and waits until none is in flight, for at most `limit`.
pub(crate) async fn drain(app: &App, signals: &mut EndSignals, limit: Duration) -> Drained {
    let Ok(service) = app.set_wish(Wish::Drain) else {
        return Drained::Finished;
    };
    let in_flight = service.engine.drain_status().in_flight;
    tracing::info!("draining {in_flight} requests in flight for at most {limit:?}");
    let finished = timeout(limit, async {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while service.engine.drain_status().state != DrainState::Drained {
            looks.tick().await;
        }
    });
    let drained = tokio::select! {
        finished = finished => match finished {
            Ok(()) => Drained::Finished,
            Err(_) => Drained::CutOff,
        },
        () = signals.next() => Drained::CutOff,
    };
    if drained == Drained::CutOff {
        let left = service.engine.drain_status().in_flight;
        tracing::warn!("cutting off {left} requests; their clients may retry elsewhere");
    }
    service.engine.stop();
    drained
}
