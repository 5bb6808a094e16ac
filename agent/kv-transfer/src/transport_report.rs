//! The transport from each prefill rank to this decode rank, for status reports.

use parking_lot::Mutex;
use pd_protocol::Transport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decode's peers and their transports. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TransportReport(Arc<Mutex<BTreeMap<String, PeerTransport>>>);

/// One prefill rank as decode reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerTransport {
    pub transport: Transport,
    /// Why a faster transport that both sides have was not taken.
    #[serde(rename = "why_not", skip_serializing_if = "String::is_empty")]
    pub fallback_reason: String,
    /// Over rdma: this side's NICs, the preferred first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<String>,
}

// === impl TransportReport ===

impl TransportReport {
    /// By the prefill's bootstrap address and rank.
    pub fn snapshot(&self) -> BTreeMap<String, PeerTransport> {
        self.0.lock().clone()
    }

    pub(crate) fn enter(&self, prefill: String, connection: PeerTransport) {
        self.0.lock().insert(prefill, connection);
    }

    pub(crate) fn leave(&self, prefill: &str) {
        self.0.lock().remove(prefill);
    }
}
