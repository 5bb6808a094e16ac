//! Authentication: peers and API keys on the HTTP API, a token or loopback on the admin API. Bearer only.

use super::error::ApiError;
use axum::Extension;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use pd_http::ClientPeer;
use pd_protocol::Secret;
use pd_protocol::secret::bearer_token;
use std::net::SocketAddr;

/// Paths that answer anybody: probes and scrapers have no key of any kind.
const OPEN_PATHS: &[&str] = &["/health", "/metrics"];
/// It generates, so that only peers may ask where those are known.
const PROBE_PATH: &str = "/health_generate";

/// Whom the HTTP API serves, beside probes and scrapers.
#[derive(Clone)]
pub(crate) struct ApiAccess {
    /// Only processes that have a key of the deployment.
    pub(crate) peers_only: bool,
    /// Only requests with this bearer token.
    pub(crate) key: Option<Secret>,
}

/// Accepts a request of the HTTP API from whom it serves.
pub(crate) async fn api(
    State(access): State<ApiAccess>,
    Extension(ClientPeer(peer)): Extension<ClientPeer>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    if OPEN_PATHS.contains(&path) {
        return Ok(next.run(request).await);
    }
    if access.peers_only && peer.is_none() {
        let message = "this worker serves processes of its deployment: send requests to the router, or over TLS with \
                       a certificate of the keys in --peer-key-file";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("no_peer_key"));
    }
    let has_key = |key: &Secret| path == PROBE_PATH || carries(request.headers(), key);
    if !access.key.as_ref().is_none_or(has_key) {
        let message =
            "missing or wrong API key: send `Authorization: Bearer` with the key of this server";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"));
    }
    Ok(next.run(request).await)
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

#[cfg(test)]
mod tests;
