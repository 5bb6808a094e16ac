//! Is the router alive, can it serve, and how does it fare.

use super::worker_queries;
use crate::error::ApiError;
use crate::router::Router;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// 200 as long as the process answers at all.
pub(super) async fn live() -> &'static str {
    "OK"
}

/// 200 if new requests are welcome.
pub(super) async fn ready(State(router): State<Arc<Router>>) -> Result<&'static str, ApiError> {
    if router.is_ready() {
        return Ok("OK");
    }
    Err(refusal(&router))
}

fn refusal(router: &Router) -> ApiError {
    ApiError::unavailable(if router.is_draining() {
        "the router is shutting down"
    } else {
        "no pair of a prefill and a decode worker, and no unified one, is ready"
    })
}

/// Has every ready worker produce a token, for those who may ask for tokens.
pub(super) async fn health_generate(
    State(router): State<Arc<Router>>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = router.api_keys.check(&headers) {
        return refusal.into_response();
    }
    if router.is_draining() || !router.is_routable() {
        return refusal(&router).into_response();
    }
    let path = PathAndQuery::from_static("/health_generate");
    let answers = worker_queries::ask_all(&router, Method::GET, path).await;
    (
        worker_queries::joint_status(&answers),
        Json(worker_queries::summary(&answers)),
    )
        .into_response()
}

pub(super) async fn metrics(State(router): State<Arc<Router>>) -> Response {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, router.metrics_text()).into_response()
}
