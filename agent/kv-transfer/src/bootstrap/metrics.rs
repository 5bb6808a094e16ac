//! What a bootstrap server counts.

use pd_http::{ConnectionMetrics, ListenerMetrics};
use prometheus::IntCounter;
use prometheus::core::Collector;

/// Counts of one bootstrap server; clones share them.
#[derive(Clone, Debug)]
pub struct BootstrapMetrics {
    pub(super) connections: ListenerMetrics,
    pub(super) refused: IntCounter,
}

// === impl BootstrapMetrics ===

impl BootstrapMetrics {
    /// Counts connections in the series of the caller's listeners.
    ///
    /// # Panics
    /// Never: the name is well-formed, which the tests prove.
    #[must_use]
    pub fn new(connections: ListenerMetrics) -> Self {
        let name = "pdserve_bootstrap_registrations_refused_total";
        let help = "Registrations of prefill ranks that the bootstrap server refused";
        Self {
            connections,
            refused: IntCounter::new(name, help).expect("the name is well-formed"),
        }
    }

    /// For a server whose caller exports none.
    pub(super) fn unread() -> Self {
        Self::new(ConnectionMetrics::new("pdserve").listener("bootstrap"))
    }

    /// To be registered by the program, beside those of its connections.
    #[must_use]
    pub fn collector(&self) -> Box<dyn Collector> {
        Box::new(self.refused.clone())
    }
}
