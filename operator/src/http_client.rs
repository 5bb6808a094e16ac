//! Small HTTP calls to pods: probes and admin APIs.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Largest answer that is read: a list of a thousand workers fits.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Characters of a refusal's body that an error quotes.
const QUOTED_CHARS_MAX: usize = 500;

/// Why a call had no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{url}: no answer within {limit:?}")]
    Timeout { url: String, limit: Duration },
    #[error("{url}: {source}")]
    Connect {
        url: String,
        source: hyper_util::client::legacy::Error,
    },
    #[error("{url}: broken answer: {reason}")]
    Body { url: String, reason: String },
    #[error("{url}: status {status}: {body}")]
    Status {
        url: String,
        status: StatusCode,
        body: String,
    },
}

/// Calls with a bearer token. Connections are not kept: a process on the same address may be
/// another one by the next call.
#[derive(Clone)]
pub(crate) struct HttpClient {
    inner: HyperClient<HttpConnector, Full<Bytes>>,
    token: String,
}

// === impl HttpClient ===

impl HttpClient {
    pub(crate) fn new(token: String) -> Self {
        let inner = HyperClient::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(HttpConnector::new());
        Self { inner, token }
    }

    /// Whether a GET is answered with a status below 400 in time.
    pub(crate) async fn probe(&self, url: &str, limit: Duration) -> bool {
        let request = Request::get(url).body(Full::default());
        let Ok(request) = request else { return false };
        let answer = tokio::time::timeout(limit, self.inner.request(request)).await;
        matches!(answer, Ok(Ok(response)) if response.status().as_u16() < 400)
    }

    /// Reads text.
    pub(crate) async fn text(&self, url: &str, limit: Duration) -> Result<String, CallError> {
        let body = self.answer(Method::GET, url, Vec::new(), limit).await?;
        String::from_utf8(body.to_vec()).map_err(|error| CallError::Body {
            url: url.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Sends JSON, or nothing, and reads JSON.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        url: &str,
        body: Option<Vec<u8>>,
        limit: Duration,
    ) -> Result<T, CallError> {
        let body = body.unwrap_or_default();
        let answer = self.answer(method, url, body, limit).await?;
        serde_json::from_slice(&answer).map_err(|error| CallError::Body {
            url: url.to_owned(),
            reason: error.to_string(),
        })
    }

    /// The body of an answer that says so.
    async fn answer(
        &self,
        method: Method,
        url: &str,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Bytes, CallError> {
        let exchange = self.exchange(method, url, body);
        let timeout = CallError::Timeout {
            url: url.to_owned(),
            limit,
        };
        let (status, body) = tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| timeout)??;
        if !status.is_success() {
            let body = String::from_utf8_lossy(&body)
                .chars()
                .take(QUOTED_CHARS_MAX)
                .collect();
            return Err(CallError::Status {
                url: url.to_owned(),
                status,
                body,
            });
        }
        Ok(body)
    }

    async fn exchange(
        &self,
        method: Method,
        url: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let broken = |reason: String| CallError::Body {
            url: url.to_owned(),
            reason,
        };
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|error| broken(error.to_string()))?;
        let response = self
            .inner
            .request(request)
            .await
            .map_err(|source| CallError::Connect {
                url: url.to_owned(),
                source,
            })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = body
            .collect()
            .await
            .map_err(|error| broken(error.to_string()))?
            .to_bytes();
        Ok((status, bytes))
    }
}
