//! A point of the stream that several may wait for.

use super::driver::{Driver, DriverError, Event};
use std::sync::Arc;

/// Its event goes back to the driver with the last holder.
#[derive(Debug)]
pub(super) struct StreamEvent {
    driver: Arc<dyn Driver>,
    event: Event,
}

// === impl StreamEvent ===

impl StreamEvent {
    /// Behind all that is enqueued so far.
    pub(super) fn record(driver: &Arc<dyn Driver>) -> Result<Arc<Self>, DriverError> {
        Ok(Arc::new(Self {
            event: driver.record()?,
            driver: Arc::clone(driver),
        }))
    }

    /// Whether the stream has passed it; the error of something enqueued before, here and below.
    pub(super) fn is_done(&self) -> Result<bool, DriverError> {
        self.driver.is_done(&self.event)
    }

    pub(super) fn wait(&self) -> Result<(), DriverError> {
        self.driver.wait(&self.event)
    }
}

impl Drop for StreamEvent {
    fn drop(&mut self) {
        self.driver.release(Event(self.event.0));
    }
}
