//! What a process writes to its standard streams: its log, the reports of panics, and its last words. Threads of their
//! own write it, so that a reader that reads nothing, a closed pipe or a full disk costs lines, which are counted, and
//! never a thread that serves.

mod dropped;
mod fields;
mod output;

use dropped::DroppedLines;
use output::{Output, Sink};
use prometheus::core::Collector;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::panic::{PanicHookInfo, set_hook};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;

/// How long the end of a process waits for what it has said.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

static STDERR: LazyLock<Output> = LazyLock::new(|| Output::start("pd-stderr", Sink::Stderr));
static STDOUT: LazyLock<Output> = LazyLock::new(|| Output::start("pd-stdout", Sink::Stdout));

/// One event of the log, which arrives as one write.
struct Line;

/// Logs to standard error from now on, and reports panics there; called once, by `main`.
pub fn init(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .fmt_fields(debug_fn(fields::write).delimited(" "))
        .with_writer(|| Line)
        .with_ansi(io::stderr().is_terminal())
        .init();
    // Its thread is there from the start, so that the number of threads says something.
    LazyLock::force(&STDERR);
    // The default hook would wait for a reader, in the thread that panics.
    set_hook(Box::new(|panic| STDERR.push(&panic_report(panic))));
}

/// Writes a line to standard error, or drops it where that takes no more.
pub fn to_stderr(line: impl Display) {
    STDERR.push(&format!("{line}\n"));
}

/// Writes a line to standard output, or drops it where that takes no more.
pub fn to_stdout(line: impl Display) {
    STDOUT.push(&format!("{line}\n"));
}

/// Lines that were dropped, because the standard streams did not take them.
#[must_use]
pub fn dropped_lines() -> u64 {
    STDERR.dropped() + STDOUT.dropped()
}

/// Their number as a series `PREFIX_log_lines_dropped_total`.
///
/// # Panics
/// The prefix is no part of a metric's name.
#[must_use]
pub fn collector(prefix: &str) -> Box<dyn Collector> {
    Box::new(DroppedLines::new(prefix))
}

/// Waits, for a moment, until what was said is written: the last call of `main`.
pub fn flush() {
    for output in [&STDOUT, &STDERR] {
        output.flush(FLUSH_LIMIT);
    }
}

/// As Rust reports a panic.
fn panic_report(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let mut report = format!("thread '{}' {panic}\n", thread.name().unwrap_or("unnamed"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        report.push_str(&backtrace.to_string());
    }
    report
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        STDERR.push(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
