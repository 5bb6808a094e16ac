//! Authentication: API keys on the HTTP API, a token or loopback on the admin API. Bearer only.

use super::error::ApiError;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use pd_protocol::Secret;
use pd_protocol::secret::bearer_token;
use std::net::SocketAddr;

/// Paths that answer without a key: probes and scrapers carry none.
const OPEN_PATHS: &[&str] = &["/health", "/health_generate", "/metrics"];

/// Accepts a request of the HTTP API if it carries the key, or if none is configured.
pub(crate) async fn api_key(
    State(key): State<Option<Secret>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let Some(key) = key else {
        return Ok(next.run(request).await);
    };
    if OPEN_PATHS.contains(&request.uri().path()) || carries(request.headers(), &key) {
        return Ok(next.run(request).await);
    }
    let message =
        "missing or wrong API key: send `Authorization: Bearer` with the key of this server";
    Err(ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"))
}

/// Accepts a request of the admin API: with the token, or from this machine if none is configured.
pub(crate) async fn admin(
    State(token): State<Option<Secret>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (allowed, what_to_do) = match token {
        Some(token) => (
            carries(request.headers(), &token),
            "send `Authorization: Bearer` with the admin token",
        ),
        None => (
            peer.ip().to_canonical().is_loopback(),
            "set PDSERVE_ADMIN_TOKEN on this worker to allow callers from other machines",
        ),
    };
    if allowed {
        return Ok(next.run(request).await);
    }
    let message = format!("the admin API refuses this caller: {what_to_do}");
    Err(ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_admin_token"))
}

fn carries(headers: &HeaderMap, secret: &Secret) -> bool {
    let value = headers.get(header::AUTHORIZATION);
    let token = value.and_then(|value| bearer_token(value.as_bytes()));
    token.is_some_and(|token| secret.matches(token))
}
