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
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Pause before the first restart; it doubles up to the largest.
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// Pause after a failure that no further start mends.
const BACK_OFF_PERMANENT: Duration = Duration::from_secs(60);
/// Exit status of a program whose command line is wrong.
const USAGE: i32 = 2;
/// Ends in a row, with the same last words and before it was ever started, that count as permanent.
const SAME_END_MAX: u32 = 4;
/// Its last words are in the pipe when a process ends; a grandchild may keep it open.
const LAST_WORDS_LIMIT: Duration = Duration::from_millis(500);
/// A process that ran this long starts again without a pause to make up for.
const BACK_OFF_RESET: Duration = Duration::from_secs(30);

/// How a process came to its end.
struct End {
    reason: String,
    /// What it said last.
    words: String,
    /// Its command line is wrong, so that it ends again.
    is_usage: bool,
}

/// Ends that were alike, in a row.
#[derive(Default)]
struct Streak {
    words: String,
    count: u32,
}

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
    /// Runs the pod's process, again and again, until it shall end.
    pub(super) async fn keep(self) {
        let mut back_off = BACK_OFF_FIRST;
        let mut streak = Streak::default();
        while self.intent() == Intent::Run {
            let began = Instant::now();
            let end = match self.spawn() {
                Ok((child, words)) => self.run(child, words).await,
                Err(error) => {
                    let program = self.launch.program.display();
                    End::because(format!("cannot start {program}: {error}"))
                }
            };
            let was_started = self.state_tx.borrow().started;
            let is_permanent = streak.goes_on(&end, was_started);
            let reason = end.full_reason(is_permanent);
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
            if is_permanent {
                back_off = BACK_OFF_PERMANENT;
            }
            let pod = &self.launch.pod;
            self.console
                .progress(&format!("{pod}: {reason}; starts again in {back_off:?}"));
            let mut intent_rx = self.intent_rx.clone();
            let ended = intent_rx.wait_for(|intent| *intent > Intent::Run);
            if timeout(back_off, ended).await.is_ok() {
                break;
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX.max(back_off));
            self.publish(|state| state.phase = Phase::Starting);
        }
        self.publish(|state| state.phase = Phase::Ended);
    }

    /// The child leads a process group of its own, so that a Ctrl-C in the terminal reaches the
    /// operator alone, which then drains it.
    fn spawn(&self) -> std::io::Result<(Child, Option<JoinHandle<String>>)> {
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
        let err = child.stderr.take();
        let words = err.map(|err| self.console.follow(pod, err));
        self.publish(|state| {
            state.phase = Phase::Starting;
            state.pid = child.id();
        });
        Ok((child, words))
    }

    /// Runs one process to its end and says why it ended.
    async fn run(&self, mut child: Child, words: Option<JoinHandle<String>>) -> End {
        let mut intent_rx = self.intent_rx.clone();
        let ended = tokio::select! {
            status = child.wait() => Err(status),
            reason = self.watch_probes(&self.launch.probes) => Ok(reason),
            _ = intent_rx.wait_for(|intent| *intent >= Intent::Terminate) => {
                Ok("asked to end".to_owned())
            }
        };
        match ended {
            Ok(reason) => {
                self.end(&mut child).await;
                End::because(reason)
            }
            Err(status) => describe(status, words).await,
        }
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

async fn describe(status: std::io::Result<ExitStatus>, words: Option<JoinHandle<String>>) -> End {
    let status = match status {
        Ok(status) => status,
        Err(error) => return End::because(format!("cannot be waited for: {error}")),
    };
    let words = match words {
        Some(words) => timeout(LAST_WORDS_LIMIT, words).await,
        None => Ok(Ok(String::new())),
    };
    End {
        reason: format!("ended with {status}"),
        words: words.ok().and_then(Result::ok).unwrap_or_default(),
        is_usage: status.code() == Some(USAGE),
    }
}

// === impl End ===

impl End {
    fn because(reason: String) -> Self {
        Self {
            reason,
            words: String::new(),
            is_usage: false,
        }
    }

    fn full_reason(&self, is_permanent: bool) -> String {
        let Self { reason, words, .. } = self;
        let words = if words.is_empty() {
            String::new()
        } else {
            format!(": {words}")
        };
        let remedy = if is_permanent {
            "; it ends the same way each time, so correct the file"
        } else {
            ""
        };
        format!("{reason}{words}{remedy}")
    }
}

// === impl Streak ===

impl Streak {
    /// Takes in an end; says whether a further start would end alike.
    fn goes_on(&mut self, end: &End, was_started: bool) -> bool {
        let is_alike = !was_started && !end.words.is_empty() && end.words == self.words;
        self.count = if is_alike { self.count + 1 } else { 1 };
        self.words.clone_from(&end.words);
        end.is_usage || self.count >= SAME_END_MAX
    }
}

#[cfg(test)]
mod tests {
    //! Facts about ends.

    use super::*;

    fn mk_end(words: &str, is_usage: bool) -> End {
        End {
            reason: "ended with exit status: 1".to_owned(),
            words: words.to_owned(),
            is_usage,
        }
    }

    #[test]
    fn a_wrong_command_line_is_permanent_at_once_and_another_end_after_a_few_alike() {
        assert!(Streak::default().goes_on(&mk_end("error: no flag", true), false));
        let mut streak = Streak::default();
        let ends: Vec<bool> = (0..SAME_END_MAX)
            .map(|_| streak.goes_on(&mk_end("error: no model", false), false))
            .collect();
        assert_eq!(ends, [false, false, false, true]);
        assert!(
            !streak.goes_on(&mk_end("error: no model", false), true),
            "it served"
        );
        assert!(
            !streak.goes_on(&mk_end("", false), false),
            "it said nothing"
        );
    }

    #[test]
    fn an_end_is_reported_with_the_last_words() {
        let end = mk_end("error: no model at /m", false);
        assert_eq!(
            end.full_reason(true),
            "ended with exit status: 1: error: no model at /m; it ends the same way each time, so correct the file"
        );
    }
}
