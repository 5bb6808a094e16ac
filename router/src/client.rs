//! HTTP client towards the workers: hyper's pooled client over TCP without Nagle's delay.

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error;
use std::time::Duration;

/// A worker that does not take a connection within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed before the worker would: uvicorn, SGLang's server, does after 5 s,
/// and a request sent into a closing connection is lost.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct Client {
    inner: legacy::Client<HttpConnector, Full<Bytes>>,
}

/// Why a worker gave no complete answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
}

// === impl Client ===

impl Client {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self { inner }
    }

    /// Sends a request and gives the answer's head. Dropping the future or the body before its
    /// end closes the connection, by which the worker learns that nobody waits.
    ///
    /// # Errors
    /// The transport's; any status is an answer.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Incoming>, ClientError> {
        let request = request.map(Full::new);
        self.inner.request(request).await.map_err(|error| {
            let reason = innermost(&error);
            match error.is_connect() {
                true => ClientError::Connect(reason),
                false => ClientError::Broken(reason),
            }
        })
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// The transport's, and `TooLarge`.
    pub async fn exchange(
        &self,
        request: Request<Bytes>,
        bytes_max: usize,
    ) -> Result<(Parts, Bytes), ClientError> {
        let (head, body) = self.send(request).await?.into_parts();
        Ok((head, read_body(body, bytes_max).await?))
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

// === impl ClientError ===

impl ClientError {
    pub fn broken(error: &hyper::Error) -> Self {
        Self::Broken(innermost(error))
    }
}

/// Reads a body to its end; without copying where it arrives in one piece.
pub async fn read_body(mut body: Incoming, bytes_max: usize) -> Result<Bytes, ClientError> {
    let mut first = Bytes::new();
    let mut all: Option<BytesMut> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ClientError::broken(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let read_len = all.as_ref().map_or(first.len(), BytesMut::len);
        if read_len + data.len() > bytes_max {
            return Err(ClientError::TooLarge(bytes_max));
        }
        match &mut all {
            Some(all) => all.extend_from_slice(&data),
            None if first.is_empty() => first = data,
            None => {
                let mut joined = BytesMut::with_capacity(2 * (first.len() + data.len()));
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&data);
                all = Some(joined);
            }
        }
    }
    Ok(all.map_or(first, BytesMut::freeze))
}

/// The last cause of an error, which names what happened.
fn innermost(error: &dyn Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
