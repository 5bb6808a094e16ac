//! The seam to the network: every socket of this crate is opened here, so a simulation of the whole system
//! replaces this file, and `clock.rs`.
//!
//! `shm` has Unix sockets of its own: they hand over descriptors of this kernel's memory, which no simulated
//! network can carry.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Uri;
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pd_identity::Peers;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::ToSocketAddrs;
use tower::Service;

pub(crate) use tokio::net::{TcpListener, TcpStream};

/// A connection to a peer, encrypted where both have a key.
pub(crate) type Stream = pd_identity::Stream<TcpStream>;

pub(crate) type HttpClient = Client<PeerConnector, Full<Bytes>>;

pub(crate) async fn connect(addr: impl ToSocketAddrs) -> std::io::Result<TcpStream> {
    TcpStream::connect(addr).await
}

/// Listens on a port that the kernel chooses.
pub(crate) async fn listen(host: IpAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind((host, 0)).await
}

/// Takes over a listener of the caller, within its runtime.
pub(crate) fn adopt(listener: std::net::TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// A client of peers' HTTP servers. Its URLs are of `http://`, also where peers have a key.
pub(crate) fn http_client(peers: Peers, connect_timeout: Duration) -> HttpClient {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    Client::builder(TokioExecutor::new()).build(PeerConnector { tcp, peers })
}

/// Opens connections to peers for an HTTP client.
#[derive(Clone)]
pub(crate) struct PeerConnector {
    tcp: HttpConnector,
    peers: Peers,
}

/// A connection of an HTTP client.
pub(crate) struct HttpStream(TokioIo<Stream>);

// === impl PeerConnector ===

impl Service<Uri> for PeerConnector {
    type Response = HttpStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<HttpStream>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_ready(cx).map_err(io::Error::other)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connected = self.tcp.call(server);
        let peers = self.peers.clone();
        async move {
            let stream = connected.await.map_err(io::Error::other)?.into_inner();
            let stream = peers.connect(stream).await?;
            Ok(HttpStream(TokioIo::new(stream)))
        }
        .boxed()
    }
}

// === impl HttpStream ===

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for HttpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
