//! Keeps the process of one pod running: start, probes, restart with back-off, end.
//!
//! A task owns the process; others see its [`State`] and send it their [`Intent`].

use super::console::Console;
use super::launch::Launch;
use crate::http_client::HttpClient;
use keeper::Keeper;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

mod health;
mod keeper;

/// Where a pod's process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Ready,
    Unready,
    BackOff,
    /// Gone, and not to be started again.
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The startup probe has succeeded since the last start.
    pub(crate) started: bool,
    pub(crate) pid: Option<u32>,
    pub(crate) restarts: u32,
    /// Why the process ended or was ended last.
    pub(crate) reason: Option<String>,
}

/// What the task is to do with its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Intent {
    /// Keep it running.
    Run,
    /// Let it end when it likes; do not start it again.
    Finish,
    /// End it: SIGTERM, and SIGKILL after the grace period.
    Terminate,
    /// End it now.
    Kill,
}

/// A pod's process, seen from outside.
#[derive(Debug)]
pub(crate) struct Process {
    state: watch::Receiver<State>,
    intent: watch::Sender<Intent>,
}

/// Starts a pod's process. `wake` is notified at every change of its state.
pub(crate) fn spawn_process(
    launch: Launch,
    client: HttpClient,
    console: Console,
    wake: Arc<Notify>,
) -> Process {
    let first = State {
        phase: Phase::Starting,
        started: false,
        pid: None,
        restarts: 0,
        reason: None,
    };
    let (state_tx, state) = watch::channel(first);
    let (intent, intent_rx) = watch::channel(Intent::Run);
    let keeper = Keeper {
        launch,
        client,
        console,
        wake,
        state_tx,
        intent_rx,
    };
    tokio::spawn(keeper.keep());
    Process { state, intent }
}

// === impl Process ===

impl Process {
    /// If the task is lost, its process went with it.
    pub(crate) fn state(&self) -> State {
        let state = self.state.borrow().clone();
        if self.state.has_changed().is_ok() || state.phase == Phase::Ended {
            return state;
        }
        State {
            phase: Phase::Ended,
            started: false,
            pid: None,
            reason: Some("the task that kept it panicked".to_owned()),
            ..state
        }
    }

    pub(crate) fn finish(&self) {
        self.raise(Intent::Finish);
    }

    pub(crate) fn terminate(&self) {
        self.raise(Intent::Terminate);
    }

    pub(crate) fn kill(&self) {
        self.raise(Intent::Kill);
    }

    /// Intents only grow: a process that shall end never runs again.
    fn raise(&self, intent: Intent) {
        self.intent.send_if_modified(|now| {
            let grows = intent > *now;
            *now = intent.max(*now);
            grows
        });
    }
}

#[cfg(test)]
mod tests;
