//! `/metrics`: metrics of the engine, the HTTP API and the GPUs, in Prometheus' text format.

use crate::service::App;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header;
use pd_http::ConnectionMetrics;
use pd_identity::Peers;
use pd_kv_transfer::BootstrapMetrics;
use prometheus::{Encoder, IntCounter, IntCounterVec, Opts, Registry, TextEncoder};
use std::sync::Arc;

/// Counters of this worker's HTTP API.
#[derive(Clone, Debug)]
pub(crate) struct HttpMetrics {
    registry: Registry,
    responses: IntCounterVec,
    /// Changes of files, by whether they could be used.
    reloads: IntCounterVec,
    pub(crate) connections: ConnectionMetrics,
    pub(crate) bootstrap: BootstrapMetrics,
}

// === impl HttpMetrics ===

impl HttpMetrics {
    pub(crate) fn new() -> Self {
        let opts = Opts::new(
            "pdserve_http_responses_total",
            "Responses begun, by route and status",
        );
        let responses = IntCounterVec::new(opts, &["route", "status"])
            .expect("the metric's name and labels are valid");
        let opts = Opts::new(
            "pdserve_reloads_total",
            "Changes of files, by whether they could be used",
        );
        let reloads = IntCounterVec::new(opts, &["files", "outcome"])
            .expect("the metric's name and labels are valid");
        let registry = Registry::new();
        registry
            .register(Box::new(responses.clone()))
            .expect("a new registry holds no other metric");
        let connections = ConnectionMetrics::new("pdserve");
        let bootstrap = BootstrapMetrics::new(connections.listener("bootstrap"));
        let others = [
            pd_log::collector("pdserve"),
            bootstrap.collector(),
            Box::new(reloads.clone()),
        ];
        for collector in connections.collectors().into_iter().chain(others) {
            let registered = registry.register(collector);
            registered.expect("a new registry holds no other metric");
        }
        Self {
            registry,
            responses,
            reloads,
            connections,
            bootstrap,
        }
    }

    /// Changes of the key file, refused and taken, from 0.
    pub(crate) fn key_changes(&self) -> [IntCounter; 2] {
        let of = |outcome| self.reloads.with_label_values(&["peer_keys", outcome]);
        [of("refused"), of("taken")]
    }

    /// This process's keys, if it has some, are these from now on.
    pub(crate) fn show_keys(&self, peers: &Peers) {
        if let Some(identity) = peers.identity() {
            let registered = self.registry.register(identity.collector("pdserve"));
            registered.expect("a process has one identity");
        }
    }
}

/// Counts every response when its head is sent. Unknown paths share one label, so that callers
/// cannot create series.
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    let status = response.status();
    let labels = [route, status.as_str()];
    app.metrics.responses.with_label_values(&labels).inc();
    response
}

pub(crate) async fn scrape(State(app): State<Arc<App>>) -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    let mut families = app.metrics.registry.gather();
    families.extend(app.gpus.families());
    encoder
        .encode(&families, &mut text)
        .expect("registered metrics can be written to memory");
    if let Ok(service) = app.service() {
        text.extend(service.engine.metrics().encode().into_bytes());
    }
    let content_type = (header::CONTENT_TYPE, encoder.format_type().to_owned());
    ([content_type], text).into_response()
}
