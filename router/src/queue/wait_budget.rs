//! How long one request may still wait, over all its attempts: so long in the queue, and of that so
//! long for a worker.

use super::{QueueConfig, QueueError};
use crate::clock::{Instant, timeout};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitBudget {
    in_queue: Duration,
    for_worker: Duration,
    wait_max: Duration,
}

// === impl WaitBudget ===

impl WaitBudget {
    pub(super) fn new(config: &QueueConfig) -> Self {
        Self {
            in_queue: config.wait_max,
            for_worker: config.no_worker_max,
            wait_max: config.wait_max,
        }
    }

    /// Whether it may wait for a worker at all.
    pub(crate) fn awaits_workers(&self) -> bool {
        !self.in_queue.min(self.for_worker).is_zero()
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(crate) async fn for_permit<T>(
        &mut self,
        permit: impl Future<Output = T>,
    ) -> Result<T, QueueError> {
        let begun = Instant::now();
        let found = timeout(self.in_queue, permit).await;
        self.in_queue = self.in_queue.saturating_sub(begun.elapsed());
        found.map_err(|_| QueueError::TimedOut {
            waited_secs: self.wait_max.as_secs(),
        })
    }

    /// Waits until there may be a worker; not longer than what is left.
    pub(crate) async fn for_worker(&mut self, sign: impl Future<Output = ()>) {
        let begun = Instant::now();
        let left = self.in_queue.min(self.for_worker);
        // Late or not, the caller looks once more.
        let _ = timeout(left, sign).await;
        self.in_queue = self.in_queue.saturating_sub(begun.elapsed());
        self.for_worker = self.for_worker.saturating_sub(begun.elapsed());
    }
}
