//! One stream: lines wait in memory, within a bound, for the thread that writes them.

use parking_lot::{Condvar, Mutex};
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Bytes that wait: some thousand lines, for a reader that is busy for a moment.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// Of the memory for them, what is kept at rest.
const KEPT_BYTES: usize = 64 << 10;

/// Where lines go.
pub(crate) enum Sink {
    Stderr,
    Stdout,
    #[cfg(test)]
    Test(Box<dyn Write + Send>),
}

/// A stream and its thread, which lives as long as the process.
pub(crate) struct Output(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    /// Lines wait.
    pushed: Condvar,
    /// The thread has nothing left to write.
    written: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// The thread writes.
    is_writing: bool,
}

// === impl Output ===

impl Output {
    pub(crate) fn start(name: &str, sink: Sink) -> Self {
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            pushed: Condvar::new(),
            written: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name(name.to_owned());
        // A process that can start no thread cannot serve either; what it says is dropped and counted.
        let _started = thread.spawn(move || of_thread.write(sink));
        Self(shared)
    }

    /// Writes whole lines, all or none of them.
    pub(crate) fn push(&self, lines: &str) {
        let mut waiting = self.0.waiting.lock();
        if waiting.bytes.len() + lines.len() > PENDING_BYTES_MAX {
            drop(waiting);
            self.0
                .dropped
                .fetch_add(count(lines.as_bytes()), Ordering::Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(lines.as_bytes());
        drop(waiting);
        self.0.pushed.notify_one();
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Waits until nothing waits any more, or the limit has passed.
    pub(crate) fn flush(&self, limit: Duration) {
        let mut waiting = self.0.waiting.lock();
        let is_behind = |waiting: &mut Waiting| waiting.is_writing || !waiting.bytes.is_empty();
        self.0
            .written
            .wait_while_for(&mut waiting, is_behind, limit);
    }
}

// === impl Shared ===

impl Shared {
    fn write(&self, mut sink: Sink) {
        let mut batch = Vec::new();
        let mut is_cut = false;
        let mut reported = 0;
        loop {
            self.take(&mut batch);
            if is_cut {
                // The rest of the line that was begun is lost; the next one is its own.
                batch.insert(0, b'\n');
            }
            let written = write_some(&mut sink, &batch);
            let lost = count(&batch[written.max(usize::from(is_cut))..]);
            is_cut =
                written < batch.len() && batch[..written].last().is_some_and(|&last| last != b'\n');
            let dropped = self.dropped.fetch_add(lost, Ordering::Relaxed) + lost;
            if lost == 0 && dropped > reported {
                let lines = dropped - reported;
                reported = dropped;
                tracing::warn!(
                    lines,
                    "dropped log lines that standard error or output did not take"
                );
            }
        }
    }

    /// Waits for lines.
    fn take(&self, batch: &mut Vec<u8>) {
        batch.clear();
        batch.shrink_to(KEPT_BYTES);
        let mut waiting = self.waiting.lock();
        waiting.is_writing = false;
        if waiting.bytes.is_empty() {
            self.written.notify_all();
        }
        self.pushed
            .wait_while(&mut waiting, |waiting| waiting.bytes.is_empty());
        waiting.is_writing = true;
        mem::swap(batch, &mut waiting.bytes);
    }
}

// === impl Sink ===

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stderr => io::stderr().write(bytes),
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write(bytes)?;
                stdout.flush()?;
                Ok(written)
            }
            #[cfg(test)]
            Self::Test(sink) => sink.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many of the bytes were written before an error.
fn write_some(sink: &mut Sink, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match sink.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests;
