//! The seam to the network: every socket of this crate is opened here. The types are `pd_net`'s: tokio's own, and in a
//! simulation of the whole system those of its network.
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
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pd_identity::Peers;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::ToSocketAddrs;
use tokio::time::timeout;
use tower::Service;

pub(crate) use pd_net::{KeepAlive, TcpListener, TcpStream, kernel};
pub(crate) use pd_net::{set_keepalive, set_send_buffer_size};

/// A connection to a peer, encrypted where both have a key.
pub(crate) type Stream = pd_identity::Stream<TcpStream>;

pub(crate) type HttpClient = Client<PeerConnector, Full<Bytes>>;

pub(crate) async fn connect(addr: impl ToSocketAddrs) -> std::io::Result<TcpStream> {
    TcpStream::connect(addr).await
}

/// The socket once more, for a thread that writes a little without waiting; `None` where bytes are encrypted on the way or
/// no kernel carries them. The connection stays open for as long as this lives.
pub(crate) fn duplicate(stream: &Stream) -> Option<OwnedFd> {
    let Stream::Plain(tcp) = stream else {
        return None;
    };
    // Without a descriptor to spare its task writes everything.
    kernel(tcp)?.as_fd().try_clone_to_owned().ok()
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
    let connector = PeerConnector {
        peers,
        connect_timeout,
    };
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Opens connections to peers for an HTTP client.
#[derive(Clone)]
pub(crate) struct PeerConnector {
    peers: Peers,
    connect_timeout: Duration,
}

/// A connection of an HTTP client.
pub(crate) struct HttpStream(TokioIo<Stream>);

// === impl PeerConnector ===

impl Service<Uri> for PeerConnector {
    type Response = HttpStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<HttpStream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Self {
            peers,
            connect_timeout,
        } = self.clone();
        async move {
            let host = server.host().ok_or(io::ErrorKind::InvalidInput)?;
            // An IPv6 address stands in brackets.
            let host = host.trim_matches(['[', ']']);
            let port = server.port_u16().unwrap_or(80);
            let connected = timeout(connect_timeout, connect((host, port))).await;
            let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            stream.set_nodelay(true)?;
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
