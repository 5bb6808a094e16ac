//! Starts the process of a pod, waits for its end, and starts it again with back-off.

use super::{Intent, Phase, State};
use crate::http_client::HttpClient;
use crate::local::console::Console;
use crate::local::launch::Launch;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

/// Pause before the first restart; it doubles up to the largest.
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// A process that ran this long starts again without a pause to make up for.
const BACK_OFF_RESET: Duration = Duration::from_secs(30);

/// The task that owns a pod's process.
pub(super) struct Keeper {
    pub(super) launch: Launch,
    pub(super) client: HttpClient,
    pub(super) console: Console,
    pub(super) wake: Arc<Notify>,
    pub(super) state_tx: watch::Sender<State>,
    pub(super) intent_rx: watch::Receiver<Intent>,
}

// === impl Keeper ===

impl Keeper {
    /// Runs the pod's process, again and again, until it is told to end.
    pub(super) async fn keep(self) {
        let mut back_off = BACK_OFF_FIRST;
        while self.intent() == Intent::Run {
            let began = Instant::now();
            let reason = match self.spawn() {
                Ok(child) => self.run(child).await,
                Err(error) => format!("cannot start {}: {error}", self.launch.program.display()),
            };
            let expected = self.intent() > Intent::Run;
            self.publish(|state| {
                *state = State {
                    phase: if expected {
                        Phase::Ended
                    } else {
                        Phase::BackOff
                    },
                    started: false,
                    pid: None,
                    restarts: state.restarts + u32::from(!expected),
                    reason: Some(reason.clone()),
                };
            });
            if expected {
                return;
            }
            if began.elapsed() >= BACK_OFF_RESET {
                back_off = BACK_OFF_FIRST;
            }
            let pod = &self.launch.pod;
            self.console
                .progress(&format!("{pod}: {reason}; starts again in {back_off:?}"));
            let mut intent_rx = self.intent_rx.clone();
            let told = intent_rx.wait_for(|intent| *intent > Intent::Run);
            if timeout(back_off, told).await.is_ok() {
                break;
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX);
            self.publish(|state| state.phase = Phase::Starting);
        }
        self.publish(|state| state.phase = Phase::Ended);
    }

    /// The child leads a process group of its own, so that a Ctrl-C in the terminal reaches the
    /// operator alone, which then drains it.
    fn spawn(&self) -> std::io::Result<Child> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("run-child")
            .arg(std::process::id().to_string())
            .arg(&self.launch.program)
            .arg("--")
            .args(&self.launch.args)
            .envs(&self.launch.env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pod = &self.launch.pod;
        if let Some(out) = child.stdout.take() {
            self.console.follow(pod, out);
        }
        if let Some(err) = child.stderr.take() {
            self.console.follow(pod, err);
        }
        self.publish(|state| {
            state.phase = Phase::Starting;
            state.pid = child.id();
        });
        Ok(child)
    }

    /// Runs one process to its end and says why it ended.
    async fn run(&self, mut child: Child) -> String {
        let mut intent_rx = self.intent_rx.clone();
        let reason = tokio::select! {
            status = child.wait() => return describe(status),
            reason = self.watch_probes(&self.launch.probes) => reason,
            _ = intent_rx.wait_for(|intent| *intent >= Intent::Terminate) => {
                "told to end".to_owned()
            }
        };
        self.end(&mut child).await;
        reason
    }

    async fn end(&self, child: &mut Child) {
        if self.intent() < Intent::Kill {
            signal(child, Signal::TERM);
            let mut intent_rx = self.intent_rx.clone();
            let killed = intent_rx.wait_for(|intent| *intent == Intent::Kill);
            tokio::select! {
                _ = timeout(self.launch.grace, child.wait()) => {}
                _ = killed => {}
            }
        }
        // After an end that came in time this finds no process, which is as well.
        if child.id().is_some() {
            signal(child, Signal::KILL);
            let _status = child.wait().await;
        }
    }

    fn intent(&self) -> Intent {
        *self.intent_rx.borrow()
    }

    pub(super) fn publish(&self, change: impl FnOnce(&mut State)) {
        let changed = self.state_tx.send_if_modified(|state| {
            let before = state.clone();
            change(state);
            *state != before
        });
        if changed {
            self.wake.notify_one();
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid
        && let Err(error) = kill_process(pid, signal)
    {
        tracing::warn!(?pid, ?signal, %error, "cannot signal a process");
    }
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("ended with {status}"),
        Err(error) => format!("cannot be waited for: {error}"),
    }
}
