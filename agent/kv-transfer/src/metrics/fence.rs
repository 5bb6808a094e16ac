//! How long memory is held back after its room has ended.

use prometheus::{Histogram, IntGauge};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct FenceMetrics {
    pub(super) closed: IntGauge,
    pub(super) release: Histogram,
}

// === impl FenceMetrics ===

impl FenceMetrics {
    /// A room has ended, and someone is at its memory.
    pub(crate) fn held(&self) {
        self.closed.inc();
    }

    /// The last one has left.
    pub(crate) fn left(&self, after: Duration) {
        self.closed.dec();
        self.release.observe(after.as_secs_f64());
    }

    /// A room has ended, and its memory was not in use.
    pub(crate) fn released_at_once(&self) {
        self.release.observe(0.0);
    }

    /// Fences that hold memory back, and those that were released.
    #[cfg(test)]
    pub(crate) fn figures(&self) -> (i64, u64) {
        (self.closed.get(), self.release.get_sample_count())
    }
}
