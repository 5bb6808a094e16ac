//! One child process: spawned with its log kept, signalled, waited for, and killed when dropped.

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{ErrorKind, PipeReader, PipeWriter, Write, pipe};
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
    _unread: Option<PipeReader>,
}

/// What is behind a process' standard output and error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogTo {
    /// The last lines, for [`Process::log`].
    #[default]
    Memory,
    /// The same, and every line on standard error as it comes.
    Shown,
    /// A disk without space.
    FullDisk,
    /// A pipe whose reader has gone.
    ClosedPipe,
    /// A full pipe whose reader reads nothing.
    UnreadPipe,
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
        Self::spawn_logging(name, binary, args, env, LogTo::Memory)
    }

    /// As [`Process::spawn`], and logs to what the caller says.
    ///
    /// # Errors
    /// When the binary cannot be started.
    pub fn spawn_logging(
        name: &str,
        binary: &Path,
        args: &[String],
        env: &[(&str, &str)],
        log_to: LogTo,
    ) -> Result<Self> {
        let (stdout, stderr, unread) = log_to.open()?;
        let mut child = Command::new(binary)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let log = Log::default();
        let shown = log_to == LogTo::Shown;
        keep_lines(child.stdout.take(), &log, shown);
        keep_lines(child.stderr.take(), &log, shown);
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
            _unread: unread,
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

// === impl LogTo ===

impl LogTo {
    /// Standard output and error, and the end of a pipe that is to stay open.
    fn open(self) -> Result<(Stdio, Stdio, Option<PipeReader>)> {
        let of_pipe = |writer: PipeWriter| -> Result<(Stdio, Stdio)> {
            Ok((writer.try_clone()?.into(), writer.into()))
        };
        Ok(match self {
            Self::Memory | Self::Shown => (Stdio::piped(), Stdio::piped(), None),
            Self::FullDisk => {
                let full = OpenOptions::new().write(true).open("/dev/full")?;
                (full.try_clone()?.into(), full.into(), None)
            }
            Self::ClosedPipe => {
                let (stdout, stderr) = of_pipe(pipe()?.1)?;
                (stdout, stderr, None)
            }
            Self::UnreadPipe => {
                let (unread, writer) = pipe()?;
                fill(&writer)?;
                let (stdout, stderr) = of_pipe(writer)?;
                (stdout, stderr, Some(unread))
            }
        })
    }
}

/// Writes until the pipe takes no more.
fn fill(mut pipe: &PipeWriter) -> Result<()> {
    let flags = fcntl_getfl(pipe)?;
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?;
    for size in [4096, 1] {
        loop {
            match pipe.write(&[b'.'; 4096][..size]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(fcntl_setfl(pipe, flags)?)
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
