//! What people read: tables, ages, times.

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use std::io::{ErrorKind, Write};

/// Writes to stdout. A reader that went away has read enough.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Rows, with columns as wide as their widest cells.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let cells = |column: usize| rows.iter().map(move |row| row[column].chars().count());
    let widths: [usize; N] = std::array::from_fn(|column| cells(column).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells.map(|(cell, wide)| format!("{cell:wide$}")).collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// How long ago `since` was, as kubectl writes ages.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    match now.duration_since(since).as_secs() {
        ..0 => "0s".to_owned(),
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A latency.
pub(crate) fn latency(seconds: f64) -> String {
    match seconds * 1000.0 {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        _ => format!("{seconds:.0} s"),
    }
}

/// A figure that may not be known.
pub(crate) fn or_dash<T>(figure: Option<T>, text: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), text)
}

#[cfg(test)]
mod tests {
    //! Facts about what people read.

    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let ago = |seconds| age(Timestamp::UNIX_EPOCH, Timestamp::new(seconds, 0).unwrap());
        let ages = [-5, 119, 120, 7199, 7200, 172_800].map(ago);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }

    #[test]
    fn latencies_have_two_or_three_digits() {
        let printed = [0.004_21, 0.0423, 1.5, 42.0].map(latency);
        assert_eq!(printed, ["4.2 ms", "42 ms", "1500 ms", "42 s"]);
    }
}
