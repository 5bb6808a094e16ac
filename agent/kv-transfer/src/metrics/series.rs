//! Names, labels and help of every series.

use super::FenceMetrics;
use crate::failure::FailureLayer;
use pd_protocol::KvPoll;
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Result};

/// From what a NIC and a switch take without load to where something is given up.
const BUCKETS_S: [f64; 20] = [
    5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0,
];

#[derive(Debug)]
pub(super) struct Series {
    pub(super) rooms_failed: IntCounterVec,
    pub(super) fences: FenceMetrics,
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
            rooms_failed: counter(
                "kv_rooms_failed_total",
                "Rooms that failed, by the state they were in and the layer that failed",
                &["stage", "layer"],
            )?,
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
            rooms_failed,
            fences: FenceMetrics { closed, release },
        } = self;
        vec![
            Box::new(rooms_failed.clone()),
            Box::new(closed.clone()),
            Box::new(release.clone()),
        ]
    }
}

fn counter(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
    IntCounterVec::new(opts(name, help), labels)
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("pdserve_{name}"), help)
}

fn histogram_opts(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(BUCKETS_S.to_vec())
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
