//! What the operator counts about itself; `/metrics` exports it.

mod deployments;

use self::deployments::Deployments;
use super::error::ApplyError;
use super::error::NotLeading;
use super::error::ReconcileError;
use crate::controller::autoscale::Decision;
use http::{Method, StatusCode};
use pd_http::{ConnectionMetrics, ListenerMetrics};
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use std::time::Duration;

/// How a worker's way out came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainOutcome {
    /// Nothing was left in flight, or it never served.
    Drained,
    /// `spec.drain.timeoutSeconds` were over.
    Deadline,
    /// They were, and it did not answer when it was last asked.
    Unanswered,
    /// Its node was.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// 1 while this process leads.
    pub(crate) leader: IntGauge,
    /// Reconciles under way.
    pub(crate) reconciling: IntGauge,
    /// What each deployment's status says.
    pub(crate) deployments: Deployments,
    reconcile_seconds: Histogram,
    drain_seconds: HistogramVec,
    errors: IntCounterVec,
    requests: IntCounterVec,
    decisions: IntCounterVec,
    connections: ConnectionMetrics,
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let build = register(
            &registry,
            IntGaugeVec::new(
                Opts::new("pd_operator_build_info", "Always 1; the version is a label"),
                &["version"],
            ),
        );
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let connections = ConnectionMetrics::new("pd_operator");
        let log = [pd_log::collector("pd_operator")];
        for collector in connections.collectors().into_iter().chain(log) {
            let registered = registry.register(collector);
            registered.expect("each name is registered once");
        }
        let reconcile_seconds = HistogramOpts::new(
            "pd_operator_reconcile_seconds",
            "Time of one reconcile of one PDDeployment",
        )
        .buckets(vec![0.005, 0.02, 0.1, 0.5, 2.0, 10.0]);
        let drain_seconds = HistogramOpts::new(
            "pd_operator_drain_seconds",
            "From the request to leave until the worker's pod is deleted",
        )
        .buckets(vec![1.0, 5.0, 15.0, 60.0, 300.0, 1800.0]);
        Self {
            leader: register(
                &registry,
                IntGauge::new("pd_operator_leader", "1 while this process leads"),
            ),
            reconciling: register(
                &registry,
                IntGauge::new("pd_operator_reconciling", "Reconciles under way"),
            ),
            reconcile_seconds: register(&registry, Histogram::with_opts(reconcile_seconds)),
            deployments: Deployments::new(&registry),
            drain_seconds: register(&registry, HistogramVec::new(drain_seconds, &["outcome"])),
            errors: register(
                &registry,
                IntCounterVec::new(
                    Opts::new(
                        "pd_operator_reconcile_errors_total",
                        "Reconciles that failed",
                    ),
                    &["reason"],
                ),
            ),
            decisions: register(
                &registry,
                IntCounterVec::new(
                    Opts::new(
                        "pd_operator_decisions_total",
                        "Decisions of the autoscaler, by what asked for a change and what limited it",
                    ),
                    &["reason", "limited_by"],
                ),
            ),
            requests: register(
                &registry,
                IntCounterVec::new(
                    Opts::new(
                        "pd_operator_apiserver_requests_total",
                        "Requests to the apiserver; code 0 if it did not answer",
                    ),
                    &["method", "code"],
                ),
            ),
            connections,
            registry,
        }
    }

    /// The series of the operator's own port.
    pub(crate) fn connections(&self) -> ListenerMetrics {
        self.connections.listener("http")
    }

    pub(crate) fn reconciled(&self, took: Duration, error: Option<&ReconcileError>) {
        self.reconcile_seconds.observe(took.as_secs_f64());
        if let Some(error) = error {
            self.errors.with_label_values(&[reason(error)]).inc();
        }
    }

    pub(crate) fn decided(&self, decision: &Decision) {
        let reason = format!("{:?}", decision.reason);
        let limit = format!("{:?}", decision.limited_by);
        self.decisions.with_label_values(&[&reason, &limit]).inc();
    }

    pub(crate) fn drained(&self, outcome: DrainOutcome, took: Duration) {
        let outcome = match outcome {
            DrainOutcome::Drained => "drained",
            DrainOutcome::Deadline => "deadline",
            DrainOutcome::Unanswered => "unanswered",
            DrainOutcome::Lost => "lost",
        };
        let histogram = self.drain_seconds.with_label_values(&[outcome]);
        histogram.observe(took.as_secs_f64());
    }

    pub(crate) fn count_request(&self, method: &Method, status: Option<StatusCode>) {
        let code = status.map_or(0, |status| status.as_u16()).to_string();
        self.requests
            .with_label_values(&[method.as_str(), &code])
            .inc();
    }

    /// In Prometheus' text format.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("metrics have valid names, and a Vec takes every write");
        text
    }
}

fn register<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let metric = made.expect("the names are valid");
    let registered = registry.register(Box::new(metric.clone()));
    registered.expect("each name is registered once");
    metric
}

/// A failure in one word, of which there are few.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "all that is no answer of the apiserver is one case"
)]
fn reason(error: &ReconcileError) -> &'static str {
    match error {
        ReconcileError::NoNamespace(_) => "NoNamespace",
        ReconcileError::Apply {
            error: ApplyError::Foreign { .. } | ApplyError::NotShared { .. },
            ..
        } => "Foreign",
        ReconcileError::Apply {
            error: ApplyError::NotWatched { .. },
            ..
        } => "NotWatched",
        ReconcileError::Apply {
            error: ApplyError::PeerKeys(_),
            ..
        } => "PeerKeys",
        ReconcileError::Apply {
            error: ApplyError::Write { source, .. },
            ..
        } => match &**source {
            kube::Error::Api(status) => match status.code {
                403 => "Forbidden",
                404 => "NotFound",
                409 => "Conflict",
                422 => "Invalid",
                429 => "TooManyRequests",
                500.. => "ServerError",
                _ => "Refused",
            },
            kube::Error::Service(source) if source.is::<NotLeading>() => "NotLeading",
            _ => "Unreachable",
        },
    }
}
