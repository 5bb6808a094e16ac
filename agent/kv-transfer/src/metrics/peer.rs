//! One peer's series. They go when it leaves; what is counted after that is not shown.

use super::rail::{RailMetrics, RailWrites};
use super::series::Series;
use super::{NIC_CHARS_MAX, TransferMetrics, shortened};
use crate::failure::FailureLayer;
use pd_protocol::Transport;
use prometheus::{IntCounter, IntCounterVec};
use std::sync::OnceLock;

/// See the module's header. Dropping it is leaving.
#[derive(Debug)]
pub(crate) struct PeerMetrics {
    metrics: TransferMetrics,
    peer: String,
    /// Its place among those of this name; none if it shares the name of all that are too many.
    entry: Option<u64>,
    /// By [`Transport::index`].
    by_transport: [TransportSeries; Transport::ALL.len()],
    aborts_sent: IntCounter,
    aborts_answered: IntCounter,
}

/// What a transport brings, made when it first does.
#[derive(Debug, Default)]
struct TransportSeries {
    bytes: OnceLock<Option<IntCounter>>,
    writes: OnceLock<Option<IntCounter>>,
    page_parts: OnceLock<Option<IntCounter>>,
    ranges: OnceLock<Option<IntCounter>>,
}

// === impl PeerMetrics ===

impl PeerMetrics {
    /// The caller holds the lock over all peers.
    pub(super) fn new(metrics: &TransferMetrics, peer: String, entry: Option<u64>) -> Self {
        let of_peer = |of: &IntCounterVec| of.with_label_values(&[peer.as_str()]);
        let series = &metrics.0.series;
        Self {
            by_transport: Default::default(),
            aborts_sent: of_peer(&series.aborts_sent),
            aborts_answered: of_peer(&series.aborts_answered),
            metrics: metrics.clone(),
            peer,
            entry,
        }
    }

    /// Removes its series, unless they are another's by now.
    pub(crate) fn leave(&self) {
        let shared = &self.metrics.0;
        let mut peers = shared.peers.lock();
        if self.entry.is_some() && peers.is_current(&self.peer, self.entry) {
            peers.entries.remove(&self.peer);
            shared.series.forget(&self.peer);
        }
    }

    /// `None` once it has left.
    fn make<T>(&self, make: impl FnOnce(&Series, &str) -> T) -> Option<T> {
        let shared = &self.metrics.0;
        let peers = shared.peers.lock();
        let is_current = peers.is_current(&self.peer, self.entry);
        is_current.then(|| make(&shared.series, &self.peer))
    }

    fn series_of(&self, transport: Transport) -> (&TransportSeries, &'static str) {
        (&self.by_transport[transport.index()], transport.as_str())
    }

    /// Counts; the handle is made with the first.
    fn add(
        &self,
        handle: &OnceLock<Option<IntCounter>>,
        of: fn(&Series) -> &IntCounterVec,
        labels: &[&str],
        by: u64,
    ) {
        let of_peer = |series: &Series, peer: &str| {
            let labels = [&[peer], labels].concat();
            of(series).with_label_values(&labels)
        };
        if let Some(counter) = handle.get_or_init(|| self.make(of_peer)) {
            counter.inc_by(by);
        }
    }

    /// Parts of pages have become ranges.
    pub(crate) fn planned(&self, transport: Transport, page_parts: usize, ranges: usize) {
        let (series, name) = self.series_of(transport);
        let (before, after) = (page_parts as u64, ranges as u64);
        self.add(&series.page_parts, |s| &s.moved.page_parts, &[name], before);
        self.add(&series.ranges, |s| &s.moved.ranges, &[name], after);
    }

    /// Bytes have moved, by what only the other side sees.
    pub(crate) fn moved(&self, transport: Transport, bytes: u64) {
        let (series, name) = self.series_of(transport);
        self.add(&series.bytes, |s| &s.moved.bytes, &["", name], bytes);
    }

    /// Bytes have moved, by so many frames or copies.
    pub(crate) fn wrote(&self, transport: Transport, bytes: u64, writes: usize) {
        let (series, name) = self.series_of(transport);
        self.add(&series.bytes, |s| &s.moved.bytes, &["", name], bytes);
        self.add(
            &series.writes,
            |s| &s.moved.writes,
            &["", name],
            writes as u64,
        );
    }

    pub(crate) fn abort_sent(&self) {
        self.aborts_sent.inc();
    }

    pub(crate) fn abort_answered(&self) {
        self.aborts_answered.inc();
    }

    /// A rail that the peer writes over. States of peers that share a name would hide each other.
    pub(crate) fn rail(&self, nic: &str, peer_nic: &str) -> RailMetrics {
        let nic = shortened(nic, NIC_CHARS_MAX);
        let peer_nic = shortened(peer_nic, NIC_CHARS_MAX);
        let labels = [self.peer.as_str(), &nic, &peer_nic];
        let show = |series: &Series, _: &str| series.rdma.rail_state.with_label_values(&labels);
        let failures = self.metrics.0.series.rdma.rail_failures.clone();
        for layer in FailureLayer::ALL {
            // A counter that appears with its first event hides that event from `rate`.
            failures.with_label_values(&[nic.as_str(), layer.name()]);
        }
        RailMetrics {
            state: self.entry.and_then(|_| self.make(show)),
            failures,
            writes: None,
            nic,
        }
    }

    /// A rail that this side writes over.
    pub(crate) fn written_rail(&self, nic: &str, peer_nic: &str) -> RailMetrics {
        let mut rail = self.rail(nic, peer_nic);
        rail.writes = self.make(|series, peer| RailWrites::new(series, peer, &rail.nic));
        rail
    }
}

impl Drop for PeerMetrics {
    fn drop(&mut self) {
        self.leave();
    }
}
