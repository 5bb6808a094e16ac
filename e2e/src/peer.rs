//! A process of a deployment, or of none: asks workers over TLS with the keys of a file.

use crate::client::Answer;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use pd_identity::{Identity, Keyring, Peers};
use std::path::Path;
use tokio::net::TcpStream;

/// Whom a worker sees.
#[derive(Clone)]
pub struct Peer(Peers);

// === impl Peer ===

impl Peer {
    /// # Errors
    /// When the file holds no keys.
    pub fn with_keys(file: &Path) -> Result<Self> {
        Ok(Self(Peers::Tls(Identity::new(Keyring::read(file)?))))
    }

    /// One of a deployment of its own.
    ///
    /// # Errors
    /// Never: a random key is one.
    pub fn stranger() -> Result<Self> {
        let key = format!("{:064x}", rand::random::<u128>());
        let keyring = Keyring::parse("keys", key.as_bytes())?;
        Ok(Self(Peers::Tls(Identity::new(keyring))))
    }

    /// Asks over a connection of its own.
    ///
    /// # Errors
    /// When no HTTP answer came; a status is no error here.
    pub async fn send(&self, method: Method, url: &str, body: impl Into<Bytes>) -> Result<Answer> {
        let uri: Uri = url.parse()?;
        let authority = uri.authority().context("a URL has a host")?.as_str();
        let stream = TcpStream::connect(authority).await?;
        let stream = self.0.connect(stream).await?;
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(uri.path())
            .header("host", authority)
            .header("content-type", "application/json")
            .body(Full::new(body.into()))?;
        let (head, body) = requests.send_request(request).await?.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.collect().await?.to_bytes(),
        })
    }
}
