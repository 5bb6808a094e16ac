//! Streams and listeners that are the kernel's or a simulated network's, with the methods of tokio's.

use crate::simulation::{self, Listener, Stream};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{ToSocketAddrs, lookup_host};

#[derive(Debug)]
pub enum TcpStream {
    Kernel(tokio::net::TcpStream),
    Simulated(Arc<dyn Stream>),
}

#[derive(Debug)]
pub enum TcpListener {
    Kernel(tokio::net::TcpListener),
    Simulated(Arc<dyn Listener>),
}

#[derive(Debug)]
pub enum OwnedReadHalf {
    Kernel(tokio::net::tcp::OwnedReadHalf),
    Simulated(Arc<dyn Stream>),
}

/// Ends what is written when it is dropped.
#[derive(Debug)]
pub enum OwnedWriteHalf {
    Kernel(tokio::net::tcp::OwnedWriteHalf),
    Simulated(SimulatedWriteHalf),
}

#[derive(Debug)]
pub struct SimulatedWriteHalf(Arc<dyn Stream>);

// === impl TcpStream ===

impl TcpStream {
    /// # Errors
    /// As tokio's.
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let Some(network) = simulation::entered() else {
            return tokio::net::TcpStream::connect(addr).await.map(Self::Kernel);
        };
        let to = lookup_host(addr).await?.next();
        let to = to.ok_or(io::ErrorKind::InvalidInput)?;
        network.connect(to).await.map(Self::Simulated)
    }

    pub(crate) fn kernel(&self) -> Option<&tokio::net::TcpStream> {
        match self {
            Self::Kernel(stream) => Some(stream),
            Self::Simulated(_) => None,
        }
    }

    pub(crate) fn vanishes_after(&self, limit: Duration) {
        if let Self::Simulated(stream) = self {
            stream.vanishes_after(limit);
        }
    }

    /// # Errors
    /// As tokio's.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(stream) => stream.try_read(buf),
            Self::Simulated(stream) => stream.try_read(buf),
        }
    }

    /// # Errors
    /// As tokio's.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(stream) => stream.peek(buf).await,
            Self::Simulated(stream) => {
                let mut buf = ReadBuf::new(buf);
                poll_fn(|cx| stream.poll_peek(cx, &mut buf)).await?;
                Ok(buf.filled().len())
            }
        }
    }

    /// # Errors
    /// As tokio's. A simulated network has no Nagle.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.kernel()
            .map_or(Ok(()), |stream| stream.set_nodelay(nodelay))
    }

    /// # Errors
    /// As tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.local_addr(),
            Self::Simulated(stream) => Ok(stream.local_addr()),
        }
    }

    /// # Errors
    /// As tokio's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.peer_addr(),
            Self::Simulated(stream) => Ok(stream.peer_addr()),
        }
    }

    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        match self {
            Self::Kernel(stream) => {
                let (read, write) = stream.into_split();
                (OwnedReadHalf::Kernel(read), OwnedWriteHalf::Kernel(write))
            }
            Self::Simulated(stream) => {
                let write = SimulatedWriteHalf(Arc::clone(&stream));
                let write = OwnedWriteHalf::Simulated(write);
                (OwnedReadHalf::Simulated(stream), write)
            }
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Simulated(stream) => stream.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Simulated(stream) => stream.poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Simulated(stream) => stream.poll_write(cx, first_full(bufs)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.kernel().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TCP has no flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Simulated(stream) => {
                stream.shutdown();
                Poll::Ready(Ok(()))
            }
        }
    }
}

fn first_full<'a>(bufs: &'a [IoSlice<'_>]) -> &'a [u8] {
    bufs.iter().find(|buf| !buf.is_empty()).map_or(&[], |b| b)
}

// === impl the halves ===

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(half) => Pin::new(half).poll_read(cx, buf),
            Self::Simulated(stream) => stream.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kernel(half) => Pin::new(half).poll_write(cx, buf),
            Self::Simulated(half) => half.0.poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(half) => Pin::new(half).poll_shutdown(cx),
            Self::Simulated(half) => {
                half.0.shutdown();
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl Drop for SimulatedWriteHalf {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

// === impl TcpListener ===

impl TcpListener {
    /// # Errors
    /// As tokio's.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let Some(network) = simulation::entered() else {
            return tokio::net::TcpListener::bind(addr).await.map(Self::Kernel);
        };
        let at = lookup_host(addr).await?.next();
        network
            .bind(at.ok_or(io::ErrorKind::InvalidInput)?)
            .map(Self::Simulated)
    }

    /// # Errors
    /// As tokio's.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        tokio::net::TcpListener::from_std(listener).map(Self::Kernel)
    }

    /// # Errors
    /// As tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(listener) => listener.local_addr(),
            Self::Simulated(listener) => Ok(listener.local_addr()),
        }
    }

    /// # Errors
    /// As tokio's.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Kernel(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((TcpStream::Kernel(stream), from))
            }
            Self::Simulated(listener) => {
                let (stream, from) = poll_fn(|cx| listener.poll_accept(cx)).await?;
                Ok((TcpStream::Simulated(stream), from))
            }
        }
    }
}

impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match self {
            Self::Kernel(listener) => {
                let (stream, from) = axum::serve::Listener::accept(listener).await;
                (TcpStream::Kernel(stream), from)
            }
            Self::Simulated(_) => loop {
                if let Ok(accepted) = TcpListener::accept(self).await {
                    return accepted;
                }
            },
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}
