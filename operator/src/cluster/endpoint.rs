//! The operator's own HTTP port: is it alive, is it ready, how does it fare.

use super::metrics::Metrics;
use super::vital_tasks::VitalTasks;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use pd_http::{Limits, connections_for, serve};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Of kubelets and Prometheuses.
const CONNECTIONS_MAX: usize = 256;

/// What the port exposes.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    metrics: Arc<Metrics>,
    /// The watches have listed everything; one that stands by is ready, too.
    is_ready: Arc<AtomicBool>,
}

// === impl Endpoint ===

impl Endpoint {
    /// Listens until the process ends.
    pub(crate) async fn start(
        address: SocketAddr,
        metrics: Arc<Metrics>,
        vital: &VitalTasks,
    ) -> io::Result<Self> {
        let endpoint = Self {
            metrics,
            is_ready: Arc::default(),
        };
        let listener = TcpListener::bind(address).await?;
        let routes = Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics_text))
            .with_state(endpoint.clone());
        let limits = Limits {
            connections: connections_for(CONNECTIONS_MAX, 1),
            ..Limits::default()
        };
        let never = CancellationToken::new();
        let connections = endpoint.metrics.connections();
        let serving = serve(listener, routes, (limits, connections), never);
        vital.spawn("listener", serving);
        Ok(endpoint)
    }

    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }
}

async fn ready(State(endpoint): State<Endpoint>) -> (StatusCode, &'static str) {
    if endpoint.is_ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        let why = "the watches have not listed everything yet";
        (StatusCode::SERVICE_UNAVAILABLE, why)
    }
}

async fn metrics_text(State(endpoint): State<Endpoint>) -> impl IntoResponse {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, endpoint.metrics.text())
}
