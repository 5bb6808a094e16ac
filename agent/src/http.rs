//! The HTTP API and the admin API. Routes translate between JSON and the engine's requests. They
//! refuse fields that are unknown, of the wrong type or not served (`body`, `fields`), and what only
//! an API forbids; the engine refuses lengths, tokens, sampling parameters and rooms.

mod admin;
mod auth;
mod body;
mod bootstrap;
mod choice;
mod constraint;
pub(crate) mod dialect;
pub(crate) mod error;
mod fields;
mod generate;
mod health;
pub(crate) mod metrics;
mod models;
mod one_or_many;
mod openai;
mod prompt;
mod sampling;
mod server_info;
mod sse;
mod stop_string_filter;
mod token_stream;
mod tokenize;
mod traced;
mod weights;

use crate::service::App;
use auth::ApiAccess;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use error::ApiError;
use http::{Method, StatusCode, Uri};
use pd_protocol::weights::{STATUS_PATH, UPDATE_PATH};
use pd_protocol::{Secret, unserved};
use std::sync::Arc;

/// Routes for clients and routers.
pub(crate) fn api(app: Arc<App>, key: Option<Secret>) -> Router {
    let access = ApiAccess {
        peers_only: app.peers.identity().is_some(),
        key,
    };
    let stored_response = get(openai::responses::stored).delete(openai::responses::stored);
    let flush_cache = get(admin::flush_cache).post(admin::flush_cache);
    let generating = Router::new()
        .route("/v1/chat/completions", post(openai::chat::chat_completions))
        .route("/v1/completions", post(openai::completions::completions))
        .route("/v1/responses", post(openai::responses::responses))
        .route(
            "/generate",
            post(generate::generate).put(generate::generate),
        )
        .route_layer(from_fn_with_state(Arc::clone(&app), traced::trace));
    Router::new()
        .merge(generating)
        .route("/v1/responses/{id}", stored_response)
        .route("/tokenize", post(tokenize::tokenize))
        .route("/v1/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/v1/detokenize", post(tokenize::detokenize))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::one))
        .route("/health", get(health::health))
        .route("/health_generate", get(health::health_generate))
        .route("/get_model_info", get(server_info::model))
        .route("/model_info", get(server_info::model))
        .route("/server_info", get(server_info::server))
        .route("/get_server_info", get(server_info::server))
        .route("/metrics", get(metrics::scrape))
        .route("/flush_cache", flush_cache)
        .fallback(unserved_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(access, auth::api))
        .layer(from_fn_with_state(Arc::clone(&app), metrics::count))
        .with_state(app)
}

/// Admin routes, for the operator and other tools.
pub(crate) fn admin_api(app: Arc<App>, token: Option<Secret>) -> Router {
    Router::new()
        .route("/cordon", post(admin::cordon))
        .route("/uncordon", post(admin::uncordon))
        .route("/drain", post(admin::drain).get(admin::drain_status))
        .route("/timeline/{room}", get(admin::timeline))
        .route("/start_profile", post(admin::start_profile))
        .route("/stop_profile", post(admin::stop_profile))
        .route("/flush_cache", post(admin::flush_cache))
        .route(STATUS_PATH, get(weights::status))
        .route(UPDATE_PATH, post(weights::update))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(token, auth::admin))
        .with_state(app)
}

async fn unserved_path(uri: Uri) -> ApiError {
    let path = uri.path();
    let message = format!("there is no {path} here: {}", unserved::why_not(path));
    ApiError::new(StatusCode::NOT_FOUND, message).with_code("unknown_path")
}

async fn unknown_path(uri: Uri) -> ApiError {
    let message = format!("there is no {} here", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, message).with_code("unknown_path")
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).with_code("method_not_allowed")
}

#[cfg(test)]
mod fuzz;
