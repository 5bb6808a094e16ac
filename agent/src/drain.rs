//! The end of the process: on SIGTERM it takes nothing new, finishes what is in flight, and exits
//! 0. At the deadline, or at a second signal, what is left ends with a retriable error.

use crate::service::App;
use anyhow::{Context, Result};
use pd_protocol::workers::DrainState;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Pause between two looks at what is in flight; much less than a token takes to read.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The signals that end the process, from the moment they are listened for.
#[derive(Debug)]
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

/// How the requests in flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Each had its answer.
    Finished,
    /// The deadline came, or a second signal.
    CutOff,
}

// === impl EndSignals ===

impl EndSignals {
    /// # Errors
    /// When the process may not handle signals.
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Refuses new requests and waits until none is in flight, no longer than `limit`.
pub(crate) async fn drain(app: &App, signals: &mut EndSignals, limit: Duration) -> Drained {
    let Ok(service) = app.service() else {
        return Drained::Finished;
    };
    service.engine.drain();
    let in_flight = service.engine.drain_status().in_flight;
    tracing::info!("draining: {in_flight} requests in flight, at most {limit:?}");
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
        tracing::warn!("{left} requests are cut off; their clients may retry elsewhere");
    }
    service.engine.stop();
    drained
}
