//! Keeps the process of one pod running: start, probes, restart with back-off, end.
//!
//! A task owns the process; others see its [`State`] and tell it their [`Intent`].

use super::client::Client;
use super::console::Console;
use super::launch::Launch;
use super::probe::{ProbeSpec, Probes, Streak};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// Pause before the first restart; it doubles up to the largest.
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// A process that ran this long starts again without a pause to make up for.
const BACK_OFF_RESET: Duration = Duration::from_secs(30);
/// How often a probe is asked until it first succeeds, whatever its period: a GET on loopback
/// costs microseconds, and a start of a second should not look like two.
const EAGER_PERIOD: Duration = Duration::from_millis(25);

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
    client: Client,
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
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
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

    /// Intents only grow: what was told to end is never told to run.
    fn raise(&self, intent: Intent) {
        self.intent.send_if_modified(|now| {
            let grows = intent > *now;
            *now = intent.max(*now);
            grows
        });
    }
}

struct Keeper {
    launch: Launch,
    client: Client,
    console: Console,
    wake: Arc<Notify>,
    state_tx: watch::Sender<State>,
    intent_rx: watch::Receiver<Intent>,
}

// === impl Keeper ===

impl Keeper {
    async fn keep(self) {
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

    /// Follows the probes; returns why the container must be restarted.
    async fn watch_probes(&self, probes: &Probes) -> String {
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
                unreachable!("readiness is watched for ever")
            }
            reason = self.watch_liveness(liveness.as_ref()) => reason,
        }
    }

    async fn wait_started(&self, startup: &ProbeSpec) -> Result<(), String> {
        let limit = startup.initial_delay + startup.period * startup.failures;
        let began = Instant::now();
        while !self.client.probe(&startup.url, startup.timeout).await {
            if began.elapsed() > limit {
                return Err(format!("{} did not answer within {limit:?}", startup.url));
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
            let ok = self.client.probe(&readiness.url, readiness.timeout).await;
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
            let ok = self.client.probe(&liveness.url, liveness.timeout).await;
            if streak.answer(ok, liveness) == Some(false) {
                return format!("{} failed {} times", liveness.url, liveness.failures);
            }
            sleep(liveness.period).await;
        }
    }

    fn intent(&self) -> Intent {
        *self.intent_rx.borrow()
    }

    fn publish(&self, change: impl FnOnce(&mut State)) {
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
