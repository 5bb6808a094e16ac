//! What is observed of the transfer, in Prometheus' types. What a request waits for is the engine's to
//! tell; here is what becomes of rooms and of their memory.

mod fence;
mod series;

use crate::failure::FailureLayer;
pub(crate) use fence::FenceMetrics;
use pd_protocol::KvPoll;
use prometheus::Registry;
use series::{Series, stage_name};
use std::sync::Arc;

/// The series of one manager. Clones share them.
#[derive(Clone, Debug)]
pub struct TransferMetrics(Arc<Series>);

// === impl TransferMetrics ===

impl Default for TransferMetrics {
    fn default() -> Self {
        Self(Arc::new(Series::new()))
    }
}

impl TransferMetrics {
    /// Adds all series to a registry.
    ///
    /// # Panics
    /// The registry has them already.
    pub fn register(&self, registry: &Registry) {
        for collector in self.0.collectors() {
            let registered = registry.register(collector);
            registered.expect("a manager's series are registered once");
        }
    }

    pub(crate) fn room_failed(&self, stage: KvPoll, layer: FailureLayer) {
        let labels = [stage_name(stage), layer.name()];
        self.0.rooms_failed.with_label_values(&labels).inc();
    }

    pub(crate) fn fences(&self) -> &FenceMetrics {
        &self.0.fences
    }
}

#[cfg(test)]
mod tests;
