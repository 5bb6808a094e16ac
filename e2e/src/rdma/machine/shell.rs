//! Commands over a host's second serial port. The other side is `init.sh`.

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Of a line that a host says, so many characters are shown.
const SHOWN_CHARS: usize = 160;

/// What the host says of one command.
#[derive(Debug, PartialEq, Eq)]
enum ShellOutput {
    Line(String),
    Code(i32),
}

type Listeners = Arc<Mutex<HashMap<u32, mpsc::UnboundedSender<ShellOutput>>>>;

pub(crate) struct Shell {
    host: String,
    stdin: ChildStdin,
    listeners: Listeners,
    next: u32,
    ready: Option<oneshot::Receiver<()>>,
}

/// A command that was started on a host.
pub struct Running {
    what: String,
    output_rx: mpsc::UnboundedReceiver<ShellOutput>,
    lines: Vec<String>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    /// All that it printed, on either stream.
    pub lines: Vec<String>,
}

// === impl Shell ===

impl Shell {
    pub(crate) fn new(host: &str, emulator: &mut Child) -> Result<Self> {
        let stdin = emulator
            .stdin
            .take()
            .context("the emulator's input is a pipe")?;
        let stdout = emulator
            .stdout
            .take()
            .context("the emulator's output is a pipe")?;
        let listeners = Listeners::default();
        let (ready_tx, ready_rx) = oneshot::channel();
        let lines = BufReader::new(stdout).lines();
        let read = read(host.to_owned(), lines, ready_tx, Arc::clone(&listeners));
        tokio::spawn(read);
        Ok(Self {
            host: host.to_owned(),
            stdin,
            listeners,
            next: 0,
            ready: Some(ready_rx),
        })
    }

    pub(crate) async fn ready(&mut self) -> Result<()> {
        match self.ready.take() {
            Some(ready) => ready.await.context("the host is gone"),
            None => Ok(()),
        }
    }

    pub(crate) async fn start(&mut self, command: &str) -> Result<Running> {
        let (tx, output_rx) = mpsc::unbounded_channel();
        let number = self.next;
        self.next += 1;
        self.listeners.lock().insert(number, tx);
        eprintln!("[{}] $ {command}", self.host);
        let line = format!("{number} {command}\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .context("the host is gone")?;
        Ok(Running {
            what: format!("`{command}` on {}", self.host),
            output_rx,
            lines: Vec::new(),
        })
    }
}

/// Shows what a host says and passes it on, until the host is gone; listeners then get an end.
async fn read(
    host: String,
    mut lines: Lines<BufReader<ChildStdout>>,
    ready_tx: oneshot::Sender<()>,
    listeners: Listeners,
) {
    let mut ready_tx = Some(ready_tx);
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "ready" {
            ready_tx.take().map(|tx| tx.send(()));
        }
        let Some((number, output)) = parse(&line) else {
            continue;
        };
        let mut listeners = listeners.lock();
        match output {
            ShellOutput::Line(line) => {
                let shown: String = line.chars().take(SHOWN_CHARS).collect();
                eprintln!("[{host}] {shown}");
                listeners
                    .get(&number)
                    .map(|tx| tx.send(ShellOutput::Line(line)));
            }
            ShellOutput::Code(code) => {
                listeners
                    .remove(&number)
                    .map(|tx| tx.send(ShellOutput::Code(code)));
            }
        }
    }
    listeners.lock().clear();
}

/// `number>line` or `number=code`.
fn parse(line: &str) -> Option<(u32, ShellOutput)> {
    let end = line.find(|c: char| !c.is_ascii_digit())?;
    let number = line[..end].parse().ok()?;
    let rest = &line[end..];
    let output = match rest.strip_prefix('>') {
        Some(line) => ShellOutput::Line(line.to_owned()),
        None => ShellOutput::Code(rest.strip_prefix('=')?.parse().ok()?),
    };
    Some((number, output))
}

// === impl Running ===

impl Running {
    /// Waits for a line that contains `words`; that line.
    ///
    /// # Errors
    /// The command ends first, or the time.
    pub async fn line(&mut self, words: &str, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            match self
                .next_output(deadline)
                .await
                .with_context(|| format!("waiting for {words:?}"))?
            {
                ShellOutput::Line(line) if line.contains(words) => {
                    self.lines.push(line.clone());
                    return Ok(line);
                }
                ShellOutput::Line(line) => self.lines.push(line),
                ShellOutput::Code(code) => {
                    let Self { what, lines, .. } = self;
                    bail!("{what} ended with {code} and never said {words:?}: {lines:?}")
                }
            }
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It takes longer than `limit`, or its host is gone.
    pub async fn exit(mut self, limit: Duration) -> Result<Exit> {
        let deadline = Instant::now() + limit;
        loop {
            match self.next_output(deadline).await? {
                ShellOutput::Line(line) => self.lines.push(line),
                ShellOutput::Code(code) => {
                    let lines = self.lines;
                    return Ok(Exit { code, lines });
                }
            }
        }
    }

    async fn next_output(&mut self, deadline: Instant) -> Result<ShellOutput> {
        match timeout_at(deadline, self.output_rx.recv()).await {
            Ok(Some(output)) => Ok(output),
            Ok(None) => bail!("{}: the host is gone", self.what),
            Err(_) => bail!("{} takes too long; it said {:?}", self.what, self.lines),
        }
    }
}

#[cfg(test)]
mod tests;
