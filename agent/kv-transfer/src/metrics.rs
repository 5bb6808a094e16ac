//! Metrics of the transfer, in Prometheus' types: names, labels, and which peer owns which series.
//! The engine measures what a request waits for; here are peers, NICs, rails and fences.
//!
//! Handles are made once for a peer, a rail or a room, so what is counted per write takes no lock. A
//! peer's series go with it, and few peers have any of their own, so a scrape stays readable.

mod fence;
mod peer;
mod rail;
mod series;

use crate::failure::FailureLayer;
pub(crate) use fence::FenceMetrics;
use parking_lot::Mutex;
use pd_protocol::KvPoll;
pub(crate) use peer::PeerMetrics;
use prometheus::Registry;
pub(crate) use rail::{RailMetrics, RailState};
use series::{Series, stage_name};
use std::collections::HashMap;
use std::sync::Arc;

/// Peers with series of their own; those that come later share one name. With eight NICs on both sides
/// a peer takes 46 series, so all of them 2 MiB of text, and the operator reads 4.
const PEERS_MAX: usize = 256;
/// The name of all peers beyond.
const OTHER: &str = "other";
/// Of a peer's name, so many characters are kept: a host's longest, its port and the rank.
const PEER_CHARS_MAX: usize = 300;
/// As long as devices' names get; the peer's say what it likes.
const NIC_CHARS_MAX: usize = 64;

/// The series of one manager. Clones share them.
#[derive(Clone, Debug)]
pub struct TransferMetrics(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    series: Series,
    peers: Mutex<Peers>,
}

/// Whose series are whose. A peer may register again before its earlier session is found lost.
#[derive(Debug, Default)]
struct Peers {
    /// The latest entry under each name.
    entries: HashMap<String, u64>,
    next: u64,
}

// === impl TransferMetrics ===

impl Default for TransferMetrics {
    fn default() -> Self {
        Self(Arc::new(Shared {
            series: Series::new(),
            peers: Mutex::default(),
        }))
    }
}

impl TransferMetrics {
    /// Adds all series to a registry.
    ///
    /// # Panics
    /// The registry has them already.
    pub fn register(&self, registry: &Registry) {
        for collector in self.0.series.collectors() {
            let registered = registry.register(collector);
            registered.expect("a manager's series are registered once");
        }
    }

    /// A peer is there: its series begin.
    pub(crate) fn enter(&self, peer: &str) -> PeerMetrics {
        let peer = shortened(peer, PEER_CHARS_MAX);
        let mut peers = self.0.peers.lock();
        let is_known = peers.entries.contains_key(&peer);
        if !is_known && peers.entries.len() >= PEERS_MAX {
            return PeerMetrics::new(self, OTHER.to_owned(), None);
        }
        if is_known {
            self.0.series.forget(&peer);
        }
        peers.next += 1;
        let entry = peers.next;
        peers.entries.insert(peer.clone(), entry);
        PeerMetrics::new(self, peer, Some(entry))
    }

    pub(crate) fn room_failed(&self, stage: KvPoll, layer: FailureLayer) {
        let labels = [stage_name(stage), layer.name()];
        self.0.series.rooms_failed.with_label_values(&labels).inc();
    }

    /// Prefill takes no decode rank of this registration.
    pub(crate) fn registration_refused(&self) {
        self.0.series.registrations_refused.inc();
    }

    /// Decode had so many bytes of a room that has been sent.
    pub(crate) fn skipped(&self, bytes: u64) {
        self.0.series.skipped_bytes.inc_by(bytes);
    }

    pub(crate) fn fences(&self) -> &FenceMetrics {
        &self.0.series.fences
    }
}

// === impl Peers ===

impl Peers {
    /// Whether series under this name may be made by this entry.
    fn is_current(&self, peer: &str, entry: Option<u64>) -> bool {
        entry.is_none() || self.entries.get(peer).copied() == entry
    }
}

fn shortened(name: &str, chars_max: usize) -> String {
    name.chars().take(chars_max).collect()
}

#[cfg(test)]
mod tests;
