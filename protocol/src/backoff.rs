//! How long to wait before a failed attempt is repeated. Pure: the caller counts attempts, draws the
//! random number and waits.

use std::time::Duration;

/// Delays that grow by a factor with each attempt, up to a ceiling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    ceiling: Duration,
    factor: f64,
    jitter: f64,
}

// === impl Backoff ===

impl Backoff {
    /// Doubles from `first` up to `ceiling`, without jitter.
    pub const fn doubling(first: Duration, ceiling: Duration) -> Self {
        Self {
            first,
            ceiling,
            factor: 2.0,
            jitter: 0.0,
        }
    }

    /// Grows by `factor`, at least 1, instead of 2.
    pub const fn factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// Share of a delay that is random, in 0..=1: with 0.2 one of 100 ms lies in 80..=120 ms.
    pub const fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// The delay after attempt `attempt_idx` (0 is the first), in the middle of its jitter.
    pub fn delay(&self, attempt_idx: u32) -> Duration {
        self.jittered(attempt_idx, 0.5)
    }

    /// The same with its jitter, which may pass the ceiling. `draw` is uniform in 0..1.
    pub fn jittered(&self, attempt_idx: u32, draw: f64) -> Duration {
        if self.first.is_zero() {
            // Zero times an infinite growth is no number.
            return Duration::ZERO;
        }
        let exponent = i32::try_from(attempt_idx).unwrap_or(i32::MAX);
        let grown = self.first.as_secs_f64() * self.factor.powi(exponent);
        let bounded = grown.min(self.ceiling.as_secs_f64());
        Duration::from_secs_f64(bounded * (1.0 + self.jitter * (2.0 * draw - 1.0)))
    }
}

#[cfg(test)]
mod tests;
