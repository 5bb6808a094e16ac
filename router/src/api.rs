//! The client-facing HTTP API: SGLang's and OpenAI's paths, and where each leads.

mod body;
mod generation;
mod health;
mod models;
mod tokens;
mod worker_queries;

use crate::cors::cors;
use crate::error::ApiError;
use crate::router::Router;
use axum::extract::State;
use axum::middleware::{from_fn_with_state, map_response_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::{CONNECTION, HeaderValue};
use http::{Method, StatusCode, Uri};
use pd_protocol::unserved;
use std::sync::Arc;

/// The API of `router`.
pub(crate) fn routes(router: Arc<Router>) -> axum::Router {
    let stored_response = get(generation::stored_response).delete(generation::stored_response);
    axum::Router::new()
        .route("/v1/chat/completions", post(generation::chat_completions))
        .route("/v1/completions", post(generation::completions))
        .route("/v1/responses", post(generation::responses))
        .route("/v1/responses/{id}", stored_response)
        .route("/generate", post(generation::generate))
        .route("/tokenize", post(tokens::relay))
        .route("/v1/tokenize", post(tokens::relay))
        .route("/detokenize", post(tokens::relay))
        .route("/v1/detokenize", post(tokens::relay))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::get))
        .route("/health", get(health::live))
        .route("/liveness", get(health::live))
        .route("/ready", get(health::ready))
        .route("/readiness", get(health::ready))
        .route("/health_generate", get(health::health_generate))
        .route("/get_model_info", get(worker_queries::model_info))
        .route("/server_info", get(worker_queries::server_info))
        .route("/get_server_info", get(worker_queries::server_info))
        .route(
            "/flush_cache",
            get(worker_queries::flush_cache).post(worker_queries::flush_cache),
        )
        .route("/metrics", get(health::metrics))
        .fallback(unserved_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(map_response_with_state(
            Arc::clone(&router),
            close_if_draining,
        ))
        .layer(from_fn_with_state(Arc::clone(&router.cors), cors))
        .with_state(router)
}

/// A router that drains asks its clients to reconnect, which leads them to another.
async fn close_if_draining(State(router): State<Arc<Router>>, mut response: Response) -> Response {
    if router.is_draining() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// Only `/metrics`, for a port of its own.
pub(crate) fn metrics_routes(router: Arc<Router>) -> axum::Router {
    axum::Router::new()
        .route("/metrics", get(health::metrics))
        .fallback(not_found)
        .with_state(router)
}

async fn unserved_path(method: Method, uri: Uri) -> ApiError {
    let path = uri.path();
    let message = format!(
        "there is no {method} {path} here: {}",
        unserved::why_not(path)
    );
    ApiError::invalid(StatusCode::NOT_FOUND, message).code("unknown_path")
}

pub(crate) async fn not_found(method: Method, uri: Uri) -> ApiError {
    ApiError::invalid(
        StatusCode::NOT_FOUND,
        format!("there is no {method} {} here", uri.path()),
    )
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::invalid(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} does not take {method}", uri.path()),
    )
}
