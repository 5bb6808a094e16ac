//! What a rail completes in a second while it is busy.

use crate::clock::Instant;
use std::time::Duration;

/// A rate is taken over at least so many bytes.
const SAMPLE_BYTES: u64 = 8 << 20;
/// Bytes per second of a rail of unknown speed.
const UNKNOWN: f64 = 1e9;

pub(super) struct Rate {
    bytes_per_s: f64,
    /// Since when the bytes of this sample were on their way.
    since: Option<Instant>,
    bytes: u64,
}

// === impl Rate ===

impl Rate {
    pub(super) fn new(bytes_per_s: Option<f64>) -> Self {
        Self {
            bytes_per_s: bytes_per_s.unwrap_or(UNKNOWN),
            since: None,
            bytes: 0,
        }
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Something is on its way.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Counts completed bytes; `is_idle` once nothing is in flight.
    pub(super) fn count(&mut self, bytes: u64, now: Instant, is_idle: bool) {
        self.bytes += bytes;
        let Some(since) = self.since else {
            return;
        };
        let busy = now.saturating_duration_since(since);
        if self.bytes >= SAMPLE_BYTES && busy > Duration::ZERO {
            let sample = self.bytes as f64 / busy.as_secs_f64();
            self.bytes_per_s = 0.7 * self.bytes_per_s + 0.3 * sample;
            (self.since, self.bytes) = (Some(now), 0);
        }
        if is_idle {
            (self.since, self.bytes) = (None, 0);
        }
    }
}
