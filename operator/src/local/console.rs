//! What a person reads while it runs: progress on stdout, the pods' own lines on stderr, each after
//! the pod's name.

use std::io::IsTerminal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// Bytes of a line that are kept together; a longer one is broken.
const LINE_BYTES_MAX: usize = 8192;

/// Last words are shown up to this length.
const WORDS_CHARS_MAX: usize = 500;

/// Terminal colours of pod names: cyan, yellow, green, magenta, blue.
const COLOURS: [u8; 5] = [36, 33, 32, 35, 34];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    colour: bool,
    /// A person reads stdout, so that hints are welcome there.
    hints: bool,
}

// === impl Console ===

impl Console {
    pub(crate) fn new() -> Self {
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let hints = std::io::stdout().is_terminal();
        Self { colour, hints }
    }

    /// Prints what the user may do next.
    pub(crate) fn hint(self, text: &str) {
        if self.hints {
            self.progress(text);
        }
    }

    /// Says how far things are. An unread stdout is no reason to stop serving.
    pub(crate) fn progress(self, text: &str) {
        pd_log::to_stdout(text);
    }

    /// Copies a pod's output until it ends; gives its last line that says something.
    pub(crate) fn follow(
        self,
        pod: &str,
        mut output: impl AsyncRead + Unpin + Send + 'static,
    ) -> JoinHandle<String> {
        let prefix = self.prefix(pod);
        tokio::spawn(async move {
            let mut lines = Lines::default();
            let mut last = String::new();
            let mut chunk = [0; LINE_BYTES_MAX];
            while let Ok(len @ 1..) = output.read(&mut chunk).await {
                for line in lines.push(&chunk[..len]) {
                    print(&prefix, &line);
                    remember(&line, &mut last);
                }
            }
            if let Some(rest) = lines.rest() {
                print(&prefix, &rest);
                remember(&rest, &mut last);
            }
            last
        })
    }

    fn prefix(self, pod: &str) -> String {
        if !self.colour {
            return format!("{pod} | ");
        }
        let sum: usize = pod.bytes().map(usize::from).sum();
        format!("\x1b[{}m{pod} |\x1b[0m ", COLOURS[sum % COLOURS.len()])
    }
}

fn remember(line: &[u8], last: &mut String) {
    let line = String::from_utf8_lossy(line);
    let line = line.trim();
    if !line.is_empty() {
        *last = line.chars().take(WORDS_CHARS_MAX).collect();
    }
}

fn print(prefix: &str, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    pd_log::to_stderr(format_args!("{prefix}{line}"));
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
struct Lines {
    partial: Vec<u8>,
}

// === impl Lines ===

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.partial.push(byte);
            }
            if byte == b'\n' || self.partial.len() >= LINE_BYTES_MAX {
                lines.push(std::mem::take(&mut self.partial));
            }
        }
        lines
    }

    fn rest(self) -> Option<Vec<u8>> {
        Some(self.partial).filter(|partial| !partial.is_empty())
    }
}

#[cfg(test)]
mod tests;
