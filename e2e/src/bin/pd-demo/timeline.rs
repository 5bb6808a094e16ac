//! Draws one request's stages in router, prefill and decode on a common axis.

use pd_protocol::timeline::{RequestTimeline, Stage, StageEvent};
use std::fmt::Write;

/// Columns of the drawn axis.
const AXIS_COLUMNS: u64 = 40;

/// A table with one row per stage, in order of time, and a bar per row on a common axis.
pub(crate) fn draw(timelines: &[RequestTimeline]) -> String {
    let mut rows: Vec<(&str, &StageEvent)> = timelines
        .iter()
        .flat_map(|t| t.events.iter().map(|event| (t.process.as_str(), event)))
        .collect();
    rows.sort_by_key(|(_, event)| event.at_unix_ns);
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return "no stage was recorded\n".to_owned();
    };
    let start = rows
        .iter()
        .map(|(_, e)| begin(e))
        .min()
        .unwrap_or(first.1.at_unix_ns);
    let span = (last.1.at_unix_ns - start).max(1);

    let mut out = format!("{:>9} {:>9}  {:<8} stage\n", "at ms", "took ms", "process");
    for (process, event) in rows {
        let took = event.duration_ns.map_or(String::new(), ms);
        let label = describe(event);
        let at = ms(event.at_unix_ns - start);
        let bar = bar(begin(event) - start, event.at_unix_ns - start, span);
        let row = format!("{at:>9} {took:>9}  {process:<8} {label:<42} {bar}");
        writeln!(out, "{}", row.trim_end()).expect("a String takes every write");
    }
    out
}

fn begin(event: &StageEvent) -> u64 {
    event
        .at_unix_ns
        .saturating_sub(event.duration_ns.unwrap_or(0))
}

fn bar(begin_ns: u64, end_ns: u64, span_ns: u64) -> String {
    let column = |ns: u64| usize::try_from(ns * AXIS_COLUMNS / span_ns).expect("few columns");
    let (from, to) = (column(begin_ns), column(end_ns));
    if to > from {
        " ".repeat(from) + &"█".repeat(to - from)
    } else {
        " ".repeat(from) + "▏"
    }
}

fn ms(ns: u64) -> String {
    let micros = ns / 1000;
    format!("{}.{:02}", micros / 1000, micros % 1000 / 10)
}

fn describe(event: &StageEvent) -> String {
    let mut text = match event.stage {
        Stage::RouterAccepted => "request accepted",
        Stage::RouterDispatched => "both legs sent",
        Stage::RouterFirstByte => "first byte to the client",
        Stage::RouterDone => "last byte to the client",
        Stage::PrefillQueued => "queued",
        Stage::PrefillBootstrapped => "bootstrapped: decode's pages are known",
        Stage::ChunkComputed => "chunk computed",
        Stage::ChunkSent => "chunk sent",
        Stage::LastWrite => "last write, with the first token",
        Stage::DecodeQueued => "queued",
        Stage::DecodePreallocated => "pages reserved",
        Stage::TransferDone => "KV complete and checked",
        Stage::FirstStep => "first decode step",
        Stage::LastToken => "last token",
    }
    .to_owned();
    if let Some(tokens) = event.tokens {
        write!(text, " · {tokens} tokens").expect("a String takes every write");
    }
    if let Some(bytes) = event.bytes {
        write!(text, " · {}", megabytes(bytes)).expect("a String takes every write");
        if let Some(state) = event.state_bytes {
            write!(text, ", state {}", megabytes(state)).expect("as above");
        }
        if let Some(ns @ 1..) = event.duration_ns {
            let tenths = bytes * 10 / ns;
            write!(text, " · {}.{} GB/s", tenths / 10, tenths % 10).expect("as above");
        }
    }
    text
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{:02} MB", bytes / 1_000_000, bytes % 1_000_000 / 10_000)
}

#[cfg(test)]
mod tests;
