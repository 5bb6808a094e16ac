//! `RowCost`: what one more row costs in a decode step, from the durations of steps with more and fewer rows.
//!
//! A step of r rows takes a + b·r: reading the weights takes a, however many rows there are, and each row adds b. The
//! least squares line through the steps so far, older ones counting less, gives both. A step of q requests without
//! drafts costs (a + b·q) / q per token. With d, the time to draft a token, a draft costs (b + d)·q / (a + b·q) of
//! that.

use crate::step::Step;
use std::time::Duration;

/// Until steps of different sizes were seen. A step of few rows is bound by memory.
const FIRST_SHARE: f64 = 0.2;
/// A row is never free.
const SHARE_MIN: f64 = 0.02;
/// What a step counts for after the next one: half after 70 steps.
const DECAY: f64 = 0.99;
/// Of the last time in the mean time of drafting.
const DRAFT_WEIGHT: f64 = 0.05;
/// Rows must vary by this much, squared, to say what one costs: as if two of a hundred steps had one row less.
const VARIANCE_MIN: f64 = 0.015;

#[derive(Debug)]
pub(crate) struct RowCost {
    share: f64,
    /// To draft one token; a decayed mean.
    draft_seconds: Option<f64>,
    sums: Sums,
}

/// Decayed sums over steps: their number, rows and seconds.
#[derive(Debug, Default)]
struct Sums {
    weight: f64,
    rows: f64,
    seconds: f64,
    rows_rows: f64,
    rows_seconds: f64,
}

// === impl RowCost ===

impl Default for RowCost {
    fn default() -> Self {
        Self {
            share: FIRST_SHARE,
            draft_seconds: None,
            sums: Sums::default(),
        }
    }
}

impl RowCost {
    /// The cost of a draft's row as a share of that of a token without drafts, in steps as large as the last one.
    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// Whether a step of `rows` rows is to be, since those of late were all of one other size.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a step has fewer than 2^52 rows"
    )]
    pub(crate) fn wants_step_of(&self, rows: usize) -> bool {
        let mean = self.sums.rows / self.sums.weight;
        self.sums.variance() < VARIANCE_MIN && (mean - rows as f64).abs() > 0.5
    }

    /// A step has taken `duration`. Steps that compute prompts do not count.
    pub(crate) fn observe_step(&mut self, step: &Step, duration: Duration) {
        if step.rows.iter().all(|row| row.is_decode()) {
            let rows = step.rows.iter().map(|row| row.positions.len()).sum();
            self.observe(step.rows.len(), rows, duration);
        }
    }

    /// It took `duration` to draft so many tokens.
    #[expect(clippy::cast_precision_loss, reason = "a step has few drafts")]
    pub(crate) fn observe_drafts(&mut self, drafts: usize, duration: Duration) {
        if drafts > 0 {
            let seconds = duration.as_secs_f64() / drafts as f64;
            let mean = self.draft_seconds.get_or_insert(seconds);
            *mean += (seconds - *mean) * DRAFT_WEIGHT;
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a step has fewer than 2^52 rows"
    )]
    fn observe(&mut self, reqs: usize, rows: usize, duration: Duration) {
        self.sums.add(rows as f64, duration.as_secs_f64());
        if let Some((fixed, row)) = self.sums.line() {
            let reqs = reqs as f64;
            let draft = row + self.draft_seconds.unwrap_or(0.0);
            self.share = (draft * reqs / (fixed + row * reqs)).max(SHARE_MIN);
        }
    }
}

// === impl Sums ===

impl Sums {
    fn add(&mut self, rows: f64, seconds: f64) {
        let add = |sum: &mut f64, value: f64| *sum = *sum * DECAY + value;
        add(&mut self.weight, 1.0);
        add(&mut self.rows, rows);
        add(&mut self.seconds, seconds);
        add(&mut self.rows_rows, rows * rows);
        add(&mut self.rows_seconds, rows * seconds);
    }

    /// Of the number of rows.
    fn variance(&self) -> f64 {
        let mean = self.rows / self.weight;
        self.rows_rows / self.weight - mean * mean
    }

    /// Seconds that a step takes for all rows together, and that each row adds. `None`: all steps were of one size, or
    /// larger ones were faster.
    fn line(&self) -> Option<(f64, f64)> {
        let mean = |sum: f64| sum / self.weight;
        let (rows, seconds) = (mean(self.rows), mean(self.seconds));
        let variance = self.variance();
        if variance < VARIANCE_MIN {
            return None;
        }
        let row = (mean(self.rows_seconds) - rows * seconds) / variance;
        let fixed = (seconds - row * rows).max(0.0);
        (row > 0.0).then_some((fixed, row))
    }
}

#[cfg(test)]
mod tests;
