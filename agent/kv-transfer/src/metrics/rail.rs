//! One rail's series, and those of the writes over it.

use super::series::Series;
use crate::failure::FailureLayer;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};
use std::time::Duration;

/// As its gauge says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(crate) enum RailState {
    Down = 0,
    /// Offered, or its probes are on their way.
    Probing = 1,
    Up = 2,
}

/// A rail's series; down once this is dropped.
#[derive(Debug)]
pub(crate) struct RailMetrics {
    pub(super) nic: String,
    pub(super) state: Option<IntGauge>,
    pub(super) failures: IntCounterVec,
    pub(super) writes: Option<RailWrites>,
}

/// Of the side that writes.
#[derive(Debug)]
pub(super) struct RailWrites {
    bytes: IntCounter,
    writes: IntCounter,
    retries: IntCounter,
    completion: Histogram,
    /// Of all rails between the NIC and the peer.
    in_flight_bytes: IntGauge,
    /// This rail's part in it.
    own_in_flight_bytes: i64,
}

// === impl RailMetrics ===

impl RailMetrics {
    pub(crate) fn show(&self, state: RailState) {
        if let Some(gauge) = &self.state {
            gauge.set(state as i64);
        }
    }

    pub(crate) fn failed(&self, layer: FailureLayer) {
        let labels = [self.nic.as_str(), layer.name()];
        self.failures.with_label_values(&labels).inc();
    }

    /// The NIC has finished a write.
    pub(crate) fn completed(&self, bytes: u64, took: Duration) {
        if let Some(writes) = &self.writes {
            writes.bytes.inc_by(bytes);
            writes.writes.inc();
            writes.completion.observe(took.as_secs_f64());
        }
    }

    /// Writes were posted that had been posted to another rail.
    pub(crate) fn posted_again(&self, count: usize) {
        if let Some(writes) = &self.writes {
            writes.retries.inc_by(count as u64);
        }
    }

    /// How much is posted and not completed.
    pub(crate) fn in_flight(&mut self, bytes: u64) {
        if let Some(writes) = &mut self.writes {
            let bytes = i64::try_from(bytes).expect("no memory has more");
            let change = bytes - std::mem::replace(&mut writes.own_in_flight_bytes, bytes);
            if change != 0 {
                writes.in_flight_bytes.add(change);
            }
        }
    }
}

impl Drop for RailMetrics {
    fn drop(&mut self) {
        self.show(RailState::Down);
        self.in_flight(0);
    }
}

// === impl RailWrites ===

impl RailWrites {
    pub(super) fn new(series: &Series, peer: &str, nic: &str) -> Self {
        let of_way = |of: &IntCounterVec| of.with_label_values(&[peer, nic, "rdma"]);
        Self {
            bytes: of_way(&series.moved.bytes),
            writes: of_way(&series.moved.writes),
            retries: series.rdma.retries.with_label_values(&[peer, nic]),
            completion: series.rdma.completion.with_label_values(&[nic]),
            in_flight_bytes: series.rdma.in_flight_bytes.with_label_values(&[peer, nic]),
            own_in_flight_bytes: 0,
        }
    }
}
