//! Counters and histograms of the router, in Prometheus text on `/metrics`.

use crate::policy::Load;
use crate::request::Api;
use http::StatusCode;
use pd_http::{ConnectionMetrics, ListenerMetrics};
use pd_identity::Identity;
use pd_protocol::Role;
use pd_protocol::workers::{WorkerState, WorkerStatus};
use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, TextEncoder,
};
use std::time::Duration;

/// Seconds, from a cached answer to a long prompt.
const SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Codes of errors for which an operator may have to do something.
const REFUSALS: [&str; 6] = [
    "bodies_too_large",
    "no_worker",
    "queue_full",
    "queue_timeout",
    "timeout",
    "too_many_open_files",
];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: prometheus::Registry,
    requests: IntCounterVec,
    answers: IntCounterVec,
    refused: IntCounterVec,
    retries: IntCounter,
    leg_failures: IntCounterVec,
    handshake_failures: IntCounterVec,
    reloads: IntCounterVec,
    certificate: CertificateDates,
    ttft: [Histogram; Api::ALL.len()],
    duration: [Histogram; Api::ALL.len()],
    prefill_leg: Histogram,
    in_flight: IntGauge,
    in_flight_max: IntGauge,
    queue_waiting: IntGauge,
    rooms: IntGauge,
    worker_requests: IntGaugeVec,
    worker_tokens: IntGaugeVec,
    worker_serving: IntGaugeVec,
    worker_circuit_open: IntGaugeVec,
    connections: ConnectionMetrics,
}

/// When the API's certificate counts; no series until there is one.
#[derive(Debug)]
struct CertificateDates {
    not_before: IntGaugeVec,
    not_after: IntGaugeVec,
}

/// How an answer that had begun came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    /// Decode or its connection failed after the first byte.
    Broken,
    /// The client left.
    Cancelled,
}

/// Why a connection ended before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFault {
    /// What was said is no TLS, or none that both sides know; or the client left.
    Broken,
    Timeout,
    /// As many as may be in flight came after it.
    CutOff,
}

/// When a certificate counts: from the first to the second, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
}

/// What is read from the router's other parts when metrics are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    pub(crate) in_flight: usize,
    /// `None`: no bound.
    pub(crate) in_flight_max: Option<usize>,
    pub(crate) queue_waiting: usize,
    pub(crate) rooms: usize,
}

// === impl Outcome ===

impl Outcome {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Broken => "broken",
            Self::Cancelled => "cancelled",
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// # Panics
    /// Never: the names are distinct and well-formed, which the tests prove.
    pub(crate) fn new() -> Self {
        let registry = prometheus::Registry::new();
        let seconds = |name: &str, help: &str| {
            register(
                &registry,
                HistogramVec::new(seconds_opts(name, help), &["api"]),
            )
        };
        let by_api =
            |seconds: &HistogramVec| Api::ALL.map(|api| seconds.with_label_values(&[api.name()]));
        let counts = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntCounterVec::new(opts(name, help), labels))
        };
        let gauge =
            |name: &str, help: &str| register(&registry, IntGauge::with_opts(opts(name, help)));
        let by_worker = |name: &str, help: &str| {
            let labels = ["worker", "role"];
            register(&registry, IntGaugeVec::new(opts(name, help), &labels))
        };
        let prefill_leg = seconds_opts("prefill_leg_seconds", "From dispatch to prefill's answer.");
        Self {
            requests: counts(
                "requests_total",
                "Answers by their status.",
                &["api", "status"],
            ),
            refused: refusals(&registry),
            answers: counts(
                "answers_total",
                "Ends of answers that had begun.",
                &["outcome"],
            ),
            retries: register(
                &registry,
                IntCounter::with_opts(opts("retries_total", "Attempts after the first.")),
            ),
            leg_failures: counts("leg_failures_total", "Legs that failed.", &["role", "kind"]),
            handshake_failures: counts(
                "tls_handshake_failures_total",
                "Connections that ended before their first request.",
                &["reason"],
            ),
            reloads: counts(
                "reloads_total",
                "Changes of files, by whether they could be used.",
                &["files", "outcome"],
            ),
            certificate: CertificateDates::new(&registry),
            ttft: by_api(&seconds(
                "ttft_seconds",
                "From arrival to decode's first byte.",
            )),
            duration: by_api(&seconds(
                "request_seconds",
                "From arrival to the last byte.",
            )),
            prefill_leg: register(&registry, Histogram::with_opts(prefill_leg)),
            in_flight: gauge("in_flight", "Requests in flight."),
            in_flight_max: gauge("in_flight_max", "Requests in flight at most; -1: no bound."),
            queue_waiting: gauge(
                "queue_waiting",
                "Requests that wait for a place or a worker.",
            ),
            rooms: gauge("rooms_in_flight", "Requests that hold rooms."),
            worker_requests: by_worker("worker_requests", "Requests in flight on a worker."),
            worker_tokens: by_worker("worker_tokens", "Tokens in flight on a worker."),
            worker_serving: by_worker("worker_serving", "1 if requests are sent to the worker."),
            worker_circuit_open: by_worker("worker_circuit_open", "1 if its circuit is open."),
            connections: shared_collectors(&registry),
            registry,
        }
    }

    pub(crate) fn answered(&self, api: Api, status: StatusCode) {
        let labels = [api.name(), status.as_str()];
        self.requests.with_label_values(&labels).inc();
    }

    pub(crate) fn refused(&self, code: &'static str) {
        self.refused.with_label_values(&[code]).inc();
    }

    pub(crate) fn ended(&self, api: Api, outcome: Outcome, after: Duration) {
        self.duration[api.index()].observe(after.as_secs_f64());
        self.answers.with_label_values(&[outcome.label()]).inc();
    }

    pub(crate) fn first_byte(&self, api: Api, after: Duration) {
        self.ttft[api.index()].observe(after.as_secs_f64());
    }

    pub(crate) fn prefill_answered(&self, after: Duration) {
        self.prefill_leg.observe(after.as_secs_f64());
    }

    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    pub(crate) fn leg_failed(&self, role: Role, kind: &str) {
        let labels = [role.as_str(), kind];
        self.leg_failures.with_label_values(&labels).inc();
    }

    /// The series of one listener.
    pub(crate) fn connections(&self, listener: &str) -> ListenerMetrics {
        self.connections.listener(listener)
    }

    pub(crate) fn handshake_failed(&self, fault: HandshakeFault) {
        let reason = match fault {
            HandshakeFault::Broken => "broken",
            HandshakeFault::Timeout => "timeout",
            HandshakeFault::CutOff => "cut_off",
        };
        self.handshake_failures.with_label_values(&[reason]).inc();
    }

    /// Files of the name have changed, and what they hold now is taken in or refused.
    pub(crate) fn reloaded(&self, files: &str, is_taken: bool) {
        let outcome = if is_taken { "taken" } else { "refused" };
        self.reloads.with_label_values(&[files, outcome]).inc();
    }

    /// This process's keys are those of an identity, whose changes count from 0.
    pub(crate) fn show_keys(&self, identity: &Identity) {
        for outcome in ["taken", "refused"] {
            self.reloads.with_label_values(&["peer_keys", outcome]);
        }
        let registered = self.registry.register(identity.collector("pd_router"));
        registered.expect("a process has one identity");
    }

    /// The API is served with a certificate; an unreadable one has no series.
    pub(crate) fn serves_with(&self, certificate: Option<Validity>) {
        self.certificate.set(certificate);
    }

    /// All of it as Prometheus text, with what each worker has in flight.
    pub(crate) fn text(&self, workers: &[(WorkerStatus, Load)], gauges: Gauges) -> Vec<u8> {
        let integer = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let in_flight_max = gauges.in_flight_max.map_or(-1, integer);
        self.in_flight.set(integer(gauges.in_flight));
        self.in_flight_max.set(in_flight_max);
        self.queue_waiting.set(integer(gauges.queue_waiting));
        self.rooms.set(integer(gauges.rooms));
        self.observe_workers(workers);
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("metrics are encoded into memory");
        text
    }

    fn observe_workers(&self, workers: &[(WorkerStatus, Load)]) {
        let vecs = [
            &self.worker_requests,
            &self.worker_tokens,
            &self.worker_serving,
            &self.worker_circuit_open,
        ];
        for vec in vecs {
            vec.reset();
        }
        for (status, load) in workers {
            let labels = [&*status.spec.id, status.spec.role.as_str()];
            let integer = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let values = [
                integer(load.requests),
                integer(load.tokens),
                i64::from(status.state == WorkerState::Serving),
                i64::from(status.circuit_open),
            ];
            for (vec, value) in vecs.into_iter().zip(values) {
                vec.with_label_values(&labels).set(value);
            }
        }
    }
}

// === impl CertificateDates ===

impl CertificateDates {
    fn new(registry: &prometheus::Registry) -> Self {
        // A gauge would be 0 from the start; a vector of none is empty.
        let gauge =
            |name: &str, help: &str| register(registry, IntGaugeVec::new(opts(name, help), &[]));
        Self {
            not_before: gauge(
                "certificate_not_before_timestamp_seconds",
                "From when the API's certificate counts.",
            ),
            not_after: gauge(
                "certificate_not_after_timestamp_seconds",
                "When the API's certificate expires.",
            ),
        }
    }

    fn set(&self, certificate: Option<Validity>) {
        let not_before = certificate.map(|validity| validity.not_before);
        let not_after = certificate.map(|validity| validity.not_after);
        for (gauge, at) in [(&self.not_before, not_before), (&self.not_after, not_after)] {
            gauge.reset();
            if let Some(at) = at {
                let at = i64::try_from(at).unwrap_or(i64::MAX);
                gauge.with_label_values(&[] as &[&str]).set(at);
            }
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The router's own errors, by their codes.
fn refusals(registry: &prometheus::Registry) -> IntCounterVec {
    let opts = opts(
        "refused_total",
        "Requests that the router itself answered with an error, by the error's code.",
    );
    let refused = register(registry, IntCounterVec::new(opts, &["code"]));
    // A counter that appears with its first event would hide that event from `rate`.
    for code in REFUSALS {
        refused.with_label_values(&[code]);
    }
    refused
}

/// What listeners and the log count.
fn shared_collectors(registry: &prometheus::Registry) -> ConnectionMetrics {
    let connections = ConnectionMetrics::new("pd_router");
    let log = [pd_log::collector("pd_router")];
    for collector in connections.collectors().into_iter().chain(log) {
        let registered = registry.register(collector);
        registered.expect("each metric is registered once");
    }
    connections
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("pd_router_{name}"), help)
}

fn seconds_opts(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(format!("pd_router_{name}"), help).buckets(SECONDS.to_vec())
}

fn register<C: Collector + Clone + 'static>(
    registry: &prometheus::Registry,
    collector: prometheus::Result<C>,
) -> C {
    let collector = collector.expect("the metric's name and labels are well-formed");
    registry
        .register(Box::new(collector.clone()))
        .expect("each metric is registered once");
    collector
}
