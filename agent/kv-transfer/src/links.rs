//! Which way the KV of each prefill rank comes, for whoever asks this process.

use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decode's links, shared with those who show them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<BTreeMap<String, Link>>>);

/// One prefill rank as decode reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// `shm`, `rdma` or `tcp`.
    pub transport: &'static str,
    /// Why nothing better was taken of what both sides have.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why_not: String,
    /// Over rdma: this side's NICs, the preferred first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<String>,
}

// === impl Links ===

impl Links {
    /// By the prefill's bootstrap address and rank.
    pub fn snapshot(&self) -> BTreeMap<String, Link> {
        self.0.lock().clone()
    }

    pub(crate) fn enter(&self, prefill: String, link: Link) {
        self.0.lock().insert(prefill, link);
    }

    pub(crate) fn leave(&self, prefill: &str) {
        self.0.lock().remove(prefill);
    }
}
