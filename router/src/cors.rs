//! Which web pages may call the API from a browser: CORS, for the API of clients only. Callers that
//! are no browsers send no `Origin` and pass by.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use http::{Method, StatusCode, Uri};
use std::net::IpAddr;
use std::sync::Arc;

/// What a page may read of an answer beside what browsers always show.
const EXPOSED: &str =
    "retry-after, x-request-id, x-pdserve-prefill, x-pdserve-decode, x-pdserve-room";
/// Chrome keeps a preflight no longer than this.
const MAX_AGE_SECS: u16 = 7200;

/// `--cors-allowed-origins`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CorsOrigins {
    Any,
    /// Pages that this machine serves, under any name of its own.
    Local,
    Listed(Vec<HeaderValue>),
}

/// Not what a browser sends as `Origin`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--cors-allowed-origins {0}: an origin is a scheme and a host, with a port where it is not the \
     scheme's, such as https://chat.example.com; `*` allows any"
)]
pub struct OriginError(String);

/// Middleware.
pub(crate) async fn cors(
    State(origins): State<Arc<CorsOrigins>>,
    request: Request,
    next: Next,
) -> Response {
    let origin = request.headers().get(ORIGIN);
    let Some(allowed) = origin.and_then(|origin| origins.allow(origin)) else {
        return next.run(request).await;
    };
    let mut response = if is_preflight(&request) {
        answer_preflight(&request)
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED),
    );
    headers.append(VARY, HeaderValue::from_static("origin"));
    response
}

fn is_preflight(request: &Request) -> bool {
    let asks = request
        .headers()
        .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    request.method() == Method::OPTIONS && asks
}

/// Any header may be sent: `*` would leave `Authorization` out.
fn answer_preflight(request: &Request) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    if let Some(asked) = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(MAX_AGE_SECS));
    response
}

// === impl CorsOrigins ===

impl CorsOrigins {
    /// # Errors
    /// The first that no browser would send.
    pub(crate) fn listed(origins: &[String]) -> Result<Self, OriginError> {
        if origins.iter().any(|origin| origin == "*") {
            return Ok(Self::Any);
        }
        let listed: Result<Vec<HeaderValue>, OriginError> = origins
            .iter()
            .map(|origin| parse(origin).ok_or_else(|| OriginError(origin.clone())))
            .collect();
        Ok(Self::Listed(listed?))
    }

    /// The CORS headers for a page of this origin, if it may read answers.
    fn allow(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        let is_allowed = match self {
            Self::Any => return Some(HeaderValue::from_static("*")),
            Self::Local => is_local(origin),
            Self::Listed(origins) => origins.contains(origin),
        };
        is_allowed.then(|| origin.clone())
    }
}

fn parse(origin: &str) -> Option<HeaderValue> {
    let parts = origin.parse::<Uri>().ok()?.into_parts();
    let is_origin = parts.scheme.is_some() && parts.authority.is_some();
    let has_path = parts.path_and_query.is_some_and(|path| path != "/") || origin.ends_with('/');
    if !is_origin || has_path {
        return None;
    }
    // Browsers write scheme and host in small letters.
    origin.to_ascii_lowercase().parse().ok()
}

fn is_local(origin: &HeaderValue) -> bool {
    let origin = origin.to_str().ok().and_then(|text| text.parse().ok());
    let host = origin.and_then(|origin: Uri| origin.host().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        is_loopback || host == "localhost" || host.ends_with(".localhost")
    })
}

#[cfg(test)]
mod tests;
