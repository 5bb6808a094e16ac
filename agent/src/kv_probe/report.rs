//! Results of a probe, for users and for scripts.

use super::decode::Round;
use super::shape::Shape;
use pd_kv_transfer::PeerTransport;
use serde::Serialize;
use std::fmt;

const GB: f64 = 1e9;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) peer: String,
    /// The transport in use, and why no faster one is.
    #[serde(flatten)]
    pub(super) link: PeerTransport,
    pub(super) sessions: u32,
    pub(super) rounds: u32,
    pub(super) rows: Vec<Row>,
    pub(super) latency: Latency,
}

/// Rounds of one shape, run concurrently in every session.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Per session.
    pieces: u32,
    piece_bytes: u64,
    /// Over all sessions.
    bytes: u64,
    gb_per_s: Spread,
    cpu_s_per_gb: CpuPerGb,
}

#[derive(Debug, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// Processor time of each process, all threads together; medians.
#[derive(Debug, Serialize)]
struct CpuPerGb {
    prefill: f64,
    decode: f64,
}

/// Of one page in one write, from prefill's `send` until it knows that decode has the page.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    bytes: u64,
    writes: usize,
    p50_us: f64,
    p99_us: f64,
}

// === impl Row ===

impl Row {
    pub(super) fn new(shape: Shape, rounds: &[Round]) -> Self {
        let of = |figure: &dyn Fn(&Round) -> f64| sorted(rounds.iter().map(figure));
        let gb = |round: &Round| round.bytes as f64 / GB;
        let rates = of(&|round| gb(round) / round.prefill.seconds());
        Self {
            pieces: shape.pieces,
            piece_bytes: shape.piece_bytes(),
            bytes: rounds.first().map_or(0, |round| round.bytes),
            gb_per_s: Spread {
                median: quantile(&rates, 50),
                min: quantile(&rates, 0),
                max: quantile(&rates, 100),
            },
            cpu_s_per_gb: CpuPerGb {
                prefill: quantile(&of(&|round| round.prefill.cpu_seconds() / gb(round)), 50),
                decode: quantile(&of(&|round| round.decode.cpu_seconds() / gb(round)), 50),
            },
        }
    }
}

// === impl Latency ===

impl Latency {
    pub(super) fn new(writes: &[Round]) -> Self {
        let took_us = sorted(writes.iter().map(|write| write.prefill.seconds() * 1e6));
        Self {
            bytes: Shape::SMALLEST.piece_bytes(),
            writes: writes.len(),
            p50_us: quantile(&took_us, 50),
            p99_us: quantile(&took_us, 99),
        }
    }
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// The value of sorted figures that `percent` per cent do not exceed; NaN if there are none.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (last * percent + 50) / 100;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

// === impl Display ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            peer,
            link,
            sessions,
            rounds,
            rows,
            latency,
        } = self;
        let plural = if *sessions == 1 { "" } else { "s at once" };
        writeln!(
            f,
            "{peer} over {}: {sessions} session{plural}, {rounds} rounds a row, every byte compared",
            link.transport
        )?;
        if !link.fallback_reason.is_empty() {
            writeln!(f, "nothing better: {}", link.fallback_reason)?;
        }
        if !link.nics.is_empty() {
            writeln!(f, "NICs here: {}", link.nics.join(", "))?;
        }
        writeln!(
            f,
            "\n{:>18} {:>9} {:>7} {:>13} {:>9} {:>9}",
            "pieces", "moved", "GB/s", "min-max", "prefill", "decode"
        )?;
        rows.iter().try_for_each(|row| write!(f, "{row}"))?;
        let Latency {
            bytes,
            writes,
            p50_us,
            p99_us,
        } = latency;
        writeln!(
            f,
            "prefill, decode: CPU seconds per GB\n\n\
             one write of {} until prefill knows of it: p50 {p50_us:.0} us, p99 {p99_us:.0} us \
             ({writes} writes)",
            size(*bytes)
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { median, min, max } = self.gb_per_s;
        let CpuPerGb { prefill, decode } = self.cpu_s_per_gb;
        writeln!(
            f,
            "{:>18} {:>9} {median:>7.2} {:>13} {prefill:>9.3} {decode:>9.3}",
            format!("{} x {}", self.pieces, size(self.piece_bytes)),
            size(self.bytes),
            format!("{min:.2}-{max:.2}"),
        )
    }
}

/// In whole units where possible.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let found = units.iter().find(|(unit, _)| bytes >= *unit);
    match found {
        None => format!("{bytes} B"),
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
    }
}

#[cfg(test)]
mod tests;
