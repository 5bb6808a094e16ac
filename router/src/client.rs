//! HTTP client towards one worker: HTTP/1.1 over kept TCP connections, without Nagle's delay, or over
//! TLS on them if the worker is at `https://`.
//!
//! A connection belongs to the request that uses it and is read and written by that request's own
//! task: no task and no channel stands between a worker's bytes and the client's socket. Dropping
//! a request or its answer before the end closes its connection, by which the worker learns that
//! no request waits.

mod body;
mod chunked;
mod connection;
mod endpoint;
mod error;
mod head;
mod pool;

pub(crate) use body::{Incoming, read_body};
pub(crate) use endpoint::{Endpoint, EndpointError};
pub(crate) use error::{Break, ClientError};
pub(crate) use head::Outgoing;

use crate::clock::{Instant, timeout};
use bytes::Bytes;
use connection::{Connection, Sent};
use http::response::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use pd_identity::Peers;
use pool::Pool;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A worker that does not take a connection, and finish its handshake, within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Client {
    endpoint: Endpoint,
    /// How the worker is met.
    peers: Peers,
    pool: Arc<Pool>,
}

// === impl Client ===

impl Client {
    /// `peers` is for an endpoint of TLS; others are met without it.
    pub(crate) fn new(endpoint: Endpoint, peers: &Peers) -> Self {
        let peers = if endpoint.is_tls() {
            peers.clone()
        } else {
            Peers::Plain
        };
        Self {
            endpoint,
            peers,
            pool: Arc::default(),
        }
    }

    /// Whether the worker and this router prove to each other that they have a key of the deployment.
    pub(crate) fn is_tls(&self) -> bool {
        self.endpoint.is_tls()
    }

    /// A request as `send` takes it. `headers` must not hold `host`, `content-length` or what
    /// concerns one connection only.
    pub(crate) fn request(
        &self,
        method: &Method,
        path: &PathAndQuery,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Outgoing {
        head::encode(&self.endpoint, method, path, headers, body)
    }

    /// Sends a request and gives the answer's head, and its body to be read as it arrives.
    ///
    /// # Errors
    /// The transport's; any status is an answer.
    pub(crate) async fn send(&self, request: Outgoing) -> Result<(Parts, Incoming), ClientError> {
        let mut connection = match self.pool.take(Instant::now()) {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let sent = connection.write(request).await;
        let sent = sent.map_err(ClientError::of_exchange)?;
        let head = loop {
            if let Some(head) = head::take(&mut connection.buffer)? {
                break head;
            }
            let read = poll_fn(|cx| connection.poll_fill(cx, 0)).await;
            if read.map_err(ClientError::of_exchange)? == 0 {
                return Err(Break::BeforeAnswer.into());
            }
        };
        let is_reusable = head.keeps_alive && sent == Sent::Whole;
        let pool = is_reusable.then(|| Arc::clone(&self.pool));
        Ok((head.parts, Incoming::new(connection, head.framing, pool)))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// The transport's, and `TooLarge`.
    pub(crate) async fn exchange(
        &self,
        request: Outgoing,
        bytes_max: usize,
    ) -> Result<(Parts, Bytes), ClientError> {
        let (head, body) = self.send(request).await?;
        Ok((head, read_body(body, bytes_max).await?))
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let connecting = Connection::open(&self.endpoint, &self.peers);
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(ClientError::of_connect),
            Err(_) => {
                let reason = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
                let late = io::Error::new(io::ErrorKind::TimedOut, reason);
                Err(ClientError::Connect(late))
            }
        }
    }
}

#[cfg(test)]
mod tests;
