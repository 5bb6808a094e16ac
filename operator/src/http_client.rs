//! Small HTTP calls to pods: probes, metrics and admin APIs; by mutual TLS with the deployment's keys where the URL says
//! so.

use bytes::Bytes;
use http::uri::{InvalidUri, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pd_identity::{Peers, Stream};
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

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
    Exchange { url: String, source: ExchangeError },
    #[error("{url}: broken answer: {reason}")]
    Body { url: String, reason: String },
    #[error("{url}: status {status}: {body}")]
    Status {
        url: String,
        status: StatusCode,
        body: String,
    },
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Url(#[from] InvalidUri),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Connect(#[from] io::Error),
    #[error("{}", root_of(.0))]
    Http(#[from] hyper::Error),
}

/// Calls with a bearer token. Connections are not kept: a process on the same address may be
/// another one by the next call.
#[derive(Clone)]
pub(crate) struct HttpClient {
    token: String,
    /// Who is reached at `https://`.
    peers: Peers,
}

// === impl HttpClient ===

impl HttpClient {
    pub(crate) fn new(token: String, peers: Peers) -> Self {
        Self { token, peers }
    }

    /// Whether a GET is answered with a status below 400 in time.
    pub(crate) async fn probe(&self, url: &str, limit: Duration) -> bool {
        let exchange = self.send(url, Request::new(Full::default()));
        let answer = tokio::time::timeout(limit, exchange).await;
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
        let failed = |source: ExchangeError| CallError::Exchange {
            url: url.to_owned(),
            source,
        };
        let request = Request::builder()
            .method(method)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|error| failed(error.into()))?;
        let response = self.send(url, request).await.map_err(failed)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = body
            .collect()
            .await
            .map_err(|error| broken(error.to_string()))?
            .to_bytes();
        Ok((status, bytes))
    }

    /// Sends a request that has no target yet over a connection of its own.
    async fn send(
        &self,
        url: &str,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let uri: Uri = url.parse()?;
        let stream = self.connect(&uri).await?;
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the request.
        tokio::spawn(connection);
        if let Some(authority) = uri.authority() {
            let host = HeaderValue::from_str(authority.as_str()).map_err(http::Error::from)?;
            request.headers_mut().insert(header::HOST, host);
        }
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        *request.uri_mut() = path.parse()?;
        Ok(requests.send_request(request).await?)
    }

    async fn connect(&self, uri: &Uri) -> io::Result<Stream<TcpStream>> {
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        if is_tls && self.peers.identity().is_none() {
            return Err(io::Error::other("the keys of its deployment are not known"));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        if is_tls {
            self.peers.connect(stream).await
        } else {
            Ok(Stream::Plain(stream))
        }
    }
}

/// What lies under an error of hyper's, which says little itself.
fn root_of(error: &hyper::Error) -> String {
    let mut root: &dyn Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

#[cfg(test)]
mod tests;
