//! How often a failed attempt is repeated, and the pause before each repetition.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct RetryConfig {
    /// Attempts after the first.
    pub(crate) retries_max: u32,
    pub(crate) backoff_first: Duration,
    pub(crate) backoff_max: Duration,
    pub(crate) multiplier: f64,
    /// Share of the pause that is random: with 0.2 a pause of 100 ms lies in 80..=120 ms.
    pub(crate) jitter: f64,
}

// === impl RetryConfig ===

impl RetryConfig {
    /// The pause before retry `retry_idx` (0 is the first). `draw` is uniform in 0..1.
    pub(crate) fn pause(&self, retry_idx: u32, draw: f64) -> Duration {
        let exponent = i32::try_from(retry_idx).unwrap_or(i32::MAX);
        let grown = self.backoff_first.as_secs_f64() * self.multiplier.powi(exponent);
        let bounded = grown.min(self.backoff_max.as_secs_f64());
        Duration::from_secs_f64(bounded * (1.0 + self.jitter * (2.0 * draw - 1.0)))
    }
}

/// Whether another worker may answer what one refused with `status`: overload, a failing server
/// or a lost upstream. What the client did wrong is wrong everywhere.
pub(crate) fn is_retriable(status: http::StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests;
