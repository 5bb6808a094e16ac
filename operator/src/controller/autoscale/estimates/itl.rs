//! `ItlModel`: time between tokens as a + b·n + c·K, for n requests with K tokens of KV in a
//! replica's batch.
//!
//! Fitted to the means of buckets of K, not to the stream of observations: a pool spends hours at
//! one load, and recursive least squares with forgetting would by then know only that load, whose
//! noise it would take for the slope. A bucket forgets what it saw itself, and nothing else.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ItlModel {
    /// By half octaves of K.
    buckets: BTreeMap<u32, Bucket>,
    observations: u32,
}

/// Means of what was seen at about one K.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Bucket {
    observations: u32,
    running: f64,
    kv_tokens: f64,
    itl_s: f64,
}

/// A replica's time between tokens when n requests of one length run: base + slope·n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ItlLine {
    pub(crate) base_s: f64,
    pub(crate) slope_s: f64,
}

const OBSERVATIONS_MIN: u32 = 5;
/// K must have varied by this share of the most.
const SPREAD_MIN: f64 = 0.30;
/// Mean share by which the fit may be off.
const ERROR_MAX: f64 = 0.25;
/// Observations that a bucket's means reach back over.
const BUCKET_MEMORY: u32 = 50;
/// Keeps the fit solvable where K is n times a constant.
const RIDGE: f64 = 1e-6;

type Row = [f64; 3];

// === impl ItlModel ===

impl ItlModel {
    pub(crate) fn observe(&mut self, running: f64, kv_tokens: f64, itl_s: f64) {
        self.observations = self.observations.saturating_add(1);
        let bucket = self.buckets.entry(half_octave(kv_tokens)).or_default();
        bucket.observations = (bucket.observations + 1).min(BUCKET_MEMORY);
        let share = 1.0 / f64::from(bucket.observations);
        bucket.running += (running - bucket.running) * share;
        bucket.kv_tokens += (kv_tokens - bucket.kv_tokens) * share;
        bucket.itl_s += (itl_s - bucket.itl_s) * share;
    }

    /// The model for requests of `tokens` each; nothing until it can be trusted.
    pub(crate) fn line(&self, tokens: f64) -> Option<ItlLine> {
        let least = self.buckets.values().next()?.kv_tokens;
        let most = self.buckets.values().next_back()?.kv_tokens;
        let spread = (most - least) / most.max(1.0);
        if self.observations < OBSERVATIONS_MIN || spread < SPREAD_MIN {
            return None;
        }
        let [a, b, c] = self.fit()?;
        let predicted = |bucket: &Bucket| a + b * bucket.running + c * bucket.kv_tokens;
        let off = |bucket: &Bucket| (predicted(bucket) / bucket.itl_s - 1.0).abs();
        let count = f64::from(u32::try_from(self.buckets.len()).unwrap_or(u32::MAX));
        let error = self.buckets.values().map(off).sum::<f64>() / count;
        let (base_s, slope_s) = (a.max(0.0), b + c * tokens);
        let trusted = error <= ERROR_MAX && slope_s > 0.0;
        trusted.then_some(ItlLine { base_s, slope_s })
    }

    /// Least squares of the shares by which the buckets are missed.
    fn fit(&self) -> Option<Row> {
        let mut left = [[0.0; 3]; 3];
        let mut right = [0.0; 3];
        for bucket in self.buckets.values() {
            let x = [1.0, bucket.running, bucket.kv_tokens].map(|x| x / bucket.itl_s);
            for (i, xi) in x.iter().enumerate() {
                right[i] += xi;
                for (j, xj) in x.iter().enumerate() {
                    left[i][j] += xi * xj;
                }
            }
        }
        for (i, row) in left.iter_mut().enumerate() {
            row[i] *= 1.0 + RIDGE;
        }
        solve(&left, &right)
    }
}

/// Cramer's rule; nothing where the rows depend on each other.
fn solve(left: &[Row; 3], right: &Row) -> Option<Row> {
    let whole = determinant(left);
    let mut found = [0.0; 3];
    for (column, found) in found.iter_mut().enumerate() {
        let mut replaced = *left;
        for (row, right) in replaced.iter_mut().zip(right) {
            row[column] = *right;
        }
        *found = determinant(&replaced) / whole;
    }
    found.iter().all(|x| x.is_finite()).then_some(found)
}

fn determinant([a, b, c]: &[Row; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "twice the logarithm of a token count is small and not negative"
)]
fn half_octave(kv_tokens: f64) -> u32 {
    (kv_tokens.max(1.0).log2() * 2.0) as u32
}
