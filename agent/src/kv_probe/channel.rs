//! Decode's connection to prefill's route: one request at a time.

use super::wire::{Offer, PATH, SendRequest, Sent};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pd_identity::Peers;
use pd_kv_transfer::BootstrapAddr;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Prefill answers with its pool without waiting for anything.
const OFFER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer that is accepted.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Characters shown of an answer that is not JSON.
const SHOWN_CHARS: usize = 300;

pub(super) struct Channel {
    requests: http1::SendRequest<Full<Bytes>>,
    peer: BootstrapAddr,
}

// === impl Channel ===

impl Channel {
    /// # Errors
    /// There is no listener, it is none of `peers`, or it does not speak HTTP.
    pub(super) async fn connect(peer: &BootstrapAddr, peers: &Peers) -> Result<Self> {
        let connected = TcpStream::connect((peer.host.as_str(), peer.port));
        let connected = timeout(CONNECT_TIMEOUT, connected).await;
        let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let stream = connected.with_context(|| {
            format!(
                "cannot reach {peer}; run `pd-agent kv-probe` on that node first, with a --host that \
                 this one reaches"
            )
        })?;
        stream.set_nodelay(true)?;
        let stream = peers.connect(stream).await;
        let stream = stream.with_context(|| {
            format!(
                "{peer} has none of the keys in --peer-key-file, or was started without that flag"
            )
        })?;
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The next request notices its end.
        tokio::spawn(connection);
        let peer = peer.clone();
        Ok(Self { requests, peer })
    }

    /// Asks for prefill's pool.
    ///
    /// # Errors
    /// The peer is not a probe.
    pub(super) async fn offer(&mut self) -> Result<Offer> {
        let peer = self.peer.clone();
        let offer = self.exchange(Method::GET, Bytes::new());
        timeout(OFFER_TIMEOUT, offer).await.with_context(|| {
            format!("{peer} does not answer as a kv-probe does: silent for {OFFER_TIMEOUT:?}")
        })?
    }

    /// Asks prefill to send, and waits until it has finished.
    ///
    /// # Errors
    /// Prefill's reason for a failure.
    pub(super) async fn send(&mut self, request: &SendRequest) -> Result<Sent> {
        let body = serde_json::to_vec(request)?;
        self.exchange(Method::POST, body.into()).await
    }

    async fn exchange<T: DeserializeOwned>(&mut self, method: Method, body: Bytes) -> Result<T> {
        let peer = &self.peer;
        let request = Request::builder()
            .method(method)
            .uri(PATH)
            .header(HOST, peer.to_string())
            .body(Full::new(body))?;
        let exchange = async {
            self.requests.ready().await?;
            self.requests.send_request(request).await
        };
        let answer = exchange.await;
        let answer = answer.with_context(|| {
            let hint = "if it has a --peer-key-file, this one needs the same";
            format!("{peer} does not answer as a kv-probe does ({hint})")
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let Ok(body) = body.collect().await else {
            bail!("{peer} ended its answer early");
        };
        let body = body.to_bytes();
        let text = String::from_utf8_lossy(&body);
        let text: String = text.chars().take(SHOWN_CHARS).collect();
        ensure!(
            status != StatusCode::NOT_FOUND,
            "no kv-probe runs on {peer}: {text}"
        );
        ensure!(status.is_success(), "prefill on {peer}: {text}");
        serde_json::from_slice(&body).with_context(|| format!("{peer} answered {text:?}"))
    }
}
