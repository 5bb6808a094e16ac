//! Streams with and without a key, under one type.

use crate::certificates::{PeerId, peer_id};
use crate::handshake::HandshakeError;
use crate::identity::{Clients, Identity};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

/// How a process meets its peers, so that callers are the same with and without a key.
#[derive(Clone, Debug, Default)]
pub enum Peers {
    /// Without a key: streams are plain, and any process is a peer.
    #[default]
    Plain,
    /// Peers have a key of the deployment.
    Tls(Identity),
}

/// A connection to a peer. What is written leaves when it is flushed. A peer that ends a TLS connection without
/// `shutdown` is an error of the read ([`io::ErrorKind::UnexpectedEof`]): the network may have cut it off.
#[derive(Debug)]
pub enum Stream<IO> {
    Plain(IO),
    Tls(Box<TlsStream<IO>>),
}

// === impl Peers ===

impl Peers {
    /// Takes a client's connection, after the handshake of [`Identity::accept`] if there is a key.
    ///
    /// # Errors
    /// Why the handshake failed.
    pub async fn accept<IO>(&self, io: IO, clients: Clients) -> io::Result<Stream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        Ok(match self {
            Self::Plain => Stream::Plain(io),
            Self::Tls(identity) => identity.accept(io, clients).await?.into(),
        })
    }

    /// Takes a connection to a server, after the handshake of [`Identity::connect`] if there is a key. If the server
    /// refuses this process, the first read says so.
    ///
    /// # Errors
    /// Why the handshake failed.
    pub async fn connect<IO>(&self, io: IO) -> io::Result<Stream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        Ok(match self {
            Self::Plain => Stream::Plain(io),
            Self::Tls(identity) => identity.connect(io).await?.into(),
        })
    }

    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Plain => None,
            Self::Tls(identity) => Some(identity),
        }
    }
}

impl From<Option<Identity>> for Peers {
    fn from(identity: Option<Identity>) -> Self {
        identity.map_or(Self::Plain, Self::Tls)
    }
}

// === impl Stream ===

impl<IO> Stream<IO> {
    /// The process at the other end, if it has proven that it has a key.
    pub fn peer(&self) -> Option<PeerId> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => peer_id(tls.get_ref().1),
        }
    }

    /// The connection below.
    pub fn get_ref(&self) -> &IO {
        match self {
            Self::Plain(io) => io,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl<IO, T: Into<TlsStream<IO>>> From<T> for Stream<IO> {
    fn from(tls: T) -> Self {
        Self::Tls(Box::new(tls.into()))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(tls) => {
                let read = Pin::new(tls.as_mut()).poll_read(cx, buf);
                read.map_err(HandshakeError::of_read)
            }
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests;
