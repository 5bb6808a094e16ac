//! One child process: spawned with its log kept, signalled, waited for, and killed when dropped.

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

/// Lines of a child's output kept for a failing test.
const LOG_LINES_MAX: usize = 400;

type Log = Arc<Mutex<VecDeque<String>>>;

pub struct Process {
    pub name: String,
    child: Child,
    log: Log,
}

// === impl Process ===

impl Process {
    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Bytes of its memory that are resident.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn resident_bytes(&self) -> Result<u64> {
        let pid = self
            .id()
            .with_context(|| format!("{} has exited", self.name))?;
        let path = format!("/proc/{pid}/statm");
        let statm = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let pages = statm
            .split(' ')
            .nth(1)
            .with_context(|| format!("{path}: {statm}"))?;
        Ok(pages.parse::<u64>()? * rustix::param::page_size() as u64)
    }

    /// # Errors
    /// When the binary cannot be started.
    pub fn spawn(name: &str, binary: &Path, args: &[String], env: &[(&str, &str)]) -> Result<Self> {
        Self::start(name, binary, args, env, false)
    }

    /// As [`Process::spawn`], and shows every line on standard error as it comes.
    ///
    /// # Errors
    /// When the binary cannot be started.
    pub fn spawn_shown(
        name: &str,
        binary: &Path,
        args: &[String],
        env: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start(name, binary, args, env, true)
    }

    fn start(
        name: &str,
        binary: &Path,
        args: &[String],
        env: &[(&str, &str)],
        shown: bool,
    ) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let log = Log::default();
        keep_lines(child.stdout.take(), &log, shown);
        keep_lines(child.stderr.take(), &log, shown);
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// The last lines that the process wrote, oldest first.
    pub fn log(&self) -> String {
        let log = self.log.lock();
        log.iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// # Errors
    /// When the process is gone already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self
            .child
            .id()
            .with_context(|| format!("{} has exited", self.name))?;
        let pid = Pid::from_raw(i32::try_from(pid)?).context("a pid is positive")?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// # Errors
    /// When the process has not exited within `limit`; the error carries its log.
    pub async fn wait_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!(
                "{} still runs after {limit:?}; its log:\n{}",
                self.name,
                self.log()
            ),
        }
    }

    /// Fails with the log when the process has exited.
    ///
    /// # Errors
    /// When the process has exited.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} exited ({status}); its log:\n{}", self.name, self.log()),
        }
    }
}

fn keep_lines(stream: Option<impl AsyncRead + Unpin + Send + 'static>, log: &Log, shown: bool) {
    let Some(stream) = stream else { return };
    let log = Arc::clone(log);
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if shown {
                eprintln!("{line}");
            }
            let mut log = log.lock();
            if log.len() == LOG_LINES_MAX {
                log.pop_front();
            }
            log.push_back(line);
        }
    });
}
