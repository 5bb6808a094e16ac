//! `Arrivals`: requests and their prompt tokens per second, now and when a replica begun now would
//! serve.

use serde::{Deserialize, Serialize};

/// Two means of the rate of requests that forget at different speeds; their distance is the trend, because a
/// mean lags a ramp by its time constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arrivals {
    fast: Mean,
    slow: Mean,
    tokens: Mean,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    /// Of the past that the mean covers; below 1 the rest is before the first observation.
    weight: f64,
}

const FAST_S: f64 = 10.0;
const SLOW_S: f64 = 60.0;
/// A trend counts beyond so many standard deviations of a Poisson stream of the same rate.
const DEVIATIONS: f64 = 2.0;
/// A forecast is at most this many times the rate.
const GROWTH_MAX: f64 = 2.0;

// === impl Arrivals ===

impl Arrivals {
    pub(crate) fn observe(&mut self, rate: f64, tokens_per_s: f64, seconds: f64) {
        self.tokens.observe(tokens_per_s, seconds / FAST_S);
        self.fast.observe(rate, seconds / FAST_S);
        self.slow.observe(rate, seconds / SLOW_S);
    }

    pub(crate) fn rate(&self) -> f64 {
        self.fast.get()
    }

    /// Prompt tokens to compute per second.
    pub(crate) fn tokens_per_s(&self) -> f64 {
        self.tokens.get()
    }

    /// The larger of the rate and what its trend leads to in `ahead_s`.
    pub(crate) fn forecast(&self, ahead_s: f64) -> f64 {
        let (fast, slow) = (self.fast.get(), self.slow.get());
        let noise = DEVIATIONS * (fast / (2.0 * FAST_S)).sqrt();
        let rise = fast - slow;
        if rise <= noise {
            return fast;
        }
        let trend = rise / (SLOW_S - FAST_S);
        (fast + trend * (FAST_S + ahead_s)).min(GROWTH_MAX * fast)
    }
}

// === impl Mean ===

impl Mean {
    fn observe(&mut self, value: f64, share: f64) {
        let kept = (-share).exp();
        self.sum = self.sum * kept + value * (1.0 - kept);
        self.weight = self.weight * kept + (1.0 - kept);
    }

    fn get(&self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }
}
