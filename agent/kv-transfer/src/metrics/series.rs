//! Names, labels and help of every series.

use super::FenceMetrics;
use crate::failure::FailureLayer;
use pd_protocol::KvPoll;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};
use prometheus::{Opts, Result};
use std::collections::HashMap;

/// From what a NIC and a switch take without load to where something is given up.
const BUCKETS_S: [f64; 20] = [
    5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0,
];

#[derive(Debug)]
pub(super) struct Series {
    pub(super) moved: Moved,
    pub(super) rdma: Rdma,
    pub(super) aborts_sent: IntCounterVec,
    pub(super) aborts_answered: IntCounterVec,
    pub(super) rooms_failed: IntCounterVec,
    pub(super) registrations_refused: IntCounter,
    pub(super) skipped_bytes: IntCounter,
    pub(super) fences: FenceMetrics,
}

/// Of every transport.
#[derive(Debug)]
pub(super) struct Moved {
    /// By NIC where it is known, which is on prefill over rdma.
    pub(super) bytes: IntCounterVec,
    pub(super) writes: IntCounterVec,
    pub(super) page_parts: IntCounterVec,
    pub(super) ranges: IntCounterVec,
}

#[derive(Debug)]
pub(super) struct Rdma {
    pub(super) in_flight_bytes: IntGaugeVec,
    pub(super) completion: HistogramVec,
    pub(super) retries: IntCounterVec,
    pub(super) rail_state: IntGaugeVec,
    pub(super) rail_failures: IntCounterVec,
}

// === impl Series ===

impl Series {
    pub(super) fn new() -> Self {
        let new = Self::build().expect("names and labels are valid");
        // A counter that appears with its first event would hide that event from `rate`.
        for stage in [
            KvPoll::Bootstrapping,
            KvPoll::WaitingForInput,
            KvPoll::Transferring,
        ] {
            for layer in FailureLayer::ALL {
                let labels = [stage_name(stage), layer.name()];
                new.rooms_failed.with_label_values(&labels);
            }
        }
        new
    }

    fn build() -> Result<Self> {
        Ok(Self {
            moved: Moved::build()?,
            rdma: Rdma::build()?,
            aborts_sent: counter(
                "kv_aborts_sent_total",
                "Decode: rooms given up, counted for each prefill rank that is notified",
                &["peer"],
            )?,
            aborts_answered: counter(
                "kv_aborts_answered_total",
                "Decode: of those, answered by prefill. Prefill: answers given",
                &["peer"],
            )?,
            rooms_failed: counter(
                "kv_rooms_failed_total",
                "Rooms that failed, by the state they were in and the layer that failed",
                &["stage", "layer"],
            )?,
            registrations_refused: IntCounter::with_opts(opts(
                "kv_registrations_refused_total",
                "Prefill: registrations of decode ranks that were refused or left out",
            ))?,
            skipped_bytes: IntCounter::with_opts(opts(
                "kv_transfer_skipped_bytes_total",
                "Prefill: KV bytes of rooms that were not sent, because decode had them",
            ))?,
            fences: FenceMetrics {
                closed: IntGauge::with_opts(opts(
                    "kv_fences_closed",
                    "Rooms that have ended and whose memory is still read or written",
                ))?,
                release: Histogram::with_opts(histogram_opts(
                    "kv_fence_release_seconds",
                    "From a room's end until its memory may be used again",
                ))?,
            },
        })
    }

    pub(super) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let Self {
            moved:
                Moved {
                    bytes,
                    writes,
                    page_parts,
                    ranges,
                },
            rdma:
                Rdma {
                    in_flight_bytes,
                    completion,
                    retries,
                    rail_state,
                    rail_failures,
                },
            aborts_sent,
            aborts_answered,
            rooms_failed,
            registrations_refused,
            skipped_bytes,
            fences: FenceMetrics { closed, release },
        } = self;
        vec![
            Box::new(bytes.clone()),
            Box::new(writes.clone()),
            Box::new(page_parts.clone()),
            Box::new(ranges.clone()),
            Box::new(in_flight_bytes.clone()),
            Box::new(completion.clone()),
            Box::new(retries.clone()),
            Box::new(rail_state.clone()),
            Box::new(rail_failures.clone()),
            Box::new(aborts_sent.clone()),
            Box::new(aborts_answered.clone()),
            Box::new(rooms_failed.clone()),
            Box::new(registrations_refused.clone()),
            Box::new(skipped_bytes.clone()),
            Box::new(closed.clone()),
            Box::new(release.clone()),
        ]
    }

    /// Removes a peer's series.
    pub(super) fn forget(&self, peer: &str) {
        let Moved {
            bytes,
            writes,
            page_parts,
            ranges,
        } = &self.moved;
        for of in [bytes, writes, page_parts, ranges, &self.rdma.retries] {
            remove(of, peer);
        }
        remove(&self.aborts_sent, peer);
        remove(&self.aborts_answered, peer);
        remove(&self.rdma.in_flight_bytes, peer);
        remove(&self.rdma.rail_state, peer);
    }
}

// === impl Moved ===

impl Moved {
    fn build() -> Result<Self> {
        Ok(Self {
            bytes: counter(
                "kv_transfer_peer_bytes_total",
                "KV bytes sent to a peer or received from one; by NIC on prefill over rdma",
                &["peer", "nic", "transport"],
            )?,
            writes: counter(
                "kv_transfer_peer_writes_total",
                "What carried them, if this side sees it: rdma writes, tcp frames, shm copies",
                &["peer", "nic", "transport"],
            )?,
            page_parts: counter(
                "kv_transfer_page_parts_total",
                "Parts of pages to move: a page has one in each region that it is spread over",
                &["peer", "transport"],
            )?,
            ranges: counter(
                "kv_transfer_ranges_total",
                "Ranges that neighbouring parts of pages were merged into",
                &["peer", "transport"],
            )?,
        })
    }
}

// === impl Rdma ===

impl Rdma {
    fn build() -> Result<Self> {
        Ok(Self {
            in_flight_bytes: gauge(
                "kv_transfer_in_flight_bytes",
                "Prefill: bytes that a NIC has and has not completed",
                &["peer", "nic"],
            )?,
            completion: HistogramVec::new(
                histogram_opts(
                    "kv_transfer_completion_seconds",
                    "Prefill: from the post of a write over rdma until its completion is known",
                ),
                &["nic"],
            )?,
            retries: counter(
                "kv_transfer_retries_total",
                "Prefill: writes posted to a NIC that had been posted to a rail that failed",
                &["peer", "nic"],
            )?,
            rail_state: gauge(
                "kv_rail_state",
                "Rail between two NICs: 0 down, 1 not proven yet, 2 up",
                &["peer", "nic", "peer_nic"],
            )?,
            rail_failures: counter(
                "kv_rail_failures_total",
                "Rails that failed or did not come up, by NIC here and the layer that failed",
                &["nic", "layer"],
            )?,
        })
    }
}

fn counter(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
    IntCounterVec::new(opts(name, help), labels)
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
    IntGaugeVec::new(opts(name, help), labels)
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("pdserve_{name}"), help)
}

fn histogram_opts(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(BUCKETS_S.to_vec())
}

fn remove<B: MetricVecBuilder>(of: &MetricVec<B>, peer: &str) {
    for family in of.collect() {
        for metric in family.get_metric() {
            let labels = metric.get_label().iter();
            let labels: HashMap<&str, &str> = labels.map(|l| (l.name(), l.value())).collect();
            if labels.get("peer") == Some(&peer) {
                let removed = of.remove(&labels);
                debug_assert!(removed.is_ok(), "one of its own: {removed:?}");
            }
        }
    }
}

pub(super) fn stage_name(stage: KvPoll) -> &'static str {
    match stage {
        KvPoll::Bootstrapping => "bootstrapping",
        KvPoll::WaitingForInput => "waiting_for_input",
        KvPoll::Transferring => "transferring",
        // A room that has ended does not fail.
        KvPoll::Failed | KvPoll::Success => "ended",
    }
}
