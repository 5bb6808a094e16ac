//! One connection to a worker, with what was read from it and not yet used.

use super::endpoint::Endpoint;
use super::head::Outgoing;
use crate::net::{self, TcpStream};
use bytes::{Buf, BytesMut};
use pd_identity::{Peers, Stream};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tokio_util::io::{poll_read_buf, poll_write_buf};

/// Space that a read finds at least: several events of a stream, or a short answer with its head.
const READ_BYTES_MIN: usize = 4 << 10;
/// A fresh buffer, which is read into until less than `READ_BYTES_MIN` of it is left.
const BUFFER_BYTES: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream<TcpStream>,
    pub(super) buffer: BytesMut,
}

/// How much of a request was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    /// The worker began to answer before it had read everything.
    Partly,
}

// === impl Connection ===

impl Connection {
    pub(super) async fn open(endpoint: &Endpoint, peers: &Peers) -> io::Result<Self> {
        let tcp = net::connect(endpoint.host(), endpoint.port()).await?;
        Ok(Self {
            stream: peers.connect(tcp).await?,
            buffer: BytesMut::new(),
        })
    }

    /// Whether nothing has come since the last answer: no byte, and not the end of the stream.
    pub(super) fn is_quiet(&self) -> bool {
        let is_taken = match &self.stream {
            Stream::Plain(_) => true,
            Stream::Tls(tls) => tls.get_ref().1.wants_read(),
        };
        let read = self.stream.get_ref().try_read(&mut [0]);
        is_taken && matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    pub(super) async fn write(&mut self, mut request: Outgoing) -> io::Result<Sent> {
        poll_fn(|cx| self.poll_write(cx, &mut request)).await
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        request: &mut Outgoing,
    ) -> Poll<io::Result<Sent>> {
        let mut stream = Pin::new(&mut self.stream);
        let stopped = loop {
            let is_written = !request.has_remaining();
            let progress = if is_written {
                stream.as_mut().poll_flush(cx)
            } else {
                poll_write_buf(stream.as_mut(), cx, request).map_ok(drop)
            };
            if !matches!(progress, Poll::Ready(Ok(()))) {
                break progress;
            }
            if is_written {
                return Poll::Ready(Ok(Sent::Whole));
            }
        };
        // Where the worker takes no more, its answer may be here and say why.
        match (self.poll_fill(cx, 0), stopped) {
            (Poll::Ready(Ok(1..)), _) => Poll::Ready(Ok(Sent::Partly)),
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (Poll::Ready(Ok(0)), _) => {
                Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionReset)))
            }
            (Poll::Pending, _) => Poll::Pending,
        }
    }

    /// Reads what has come, at least `expected_len` bytes if they are here; 0 is the end of the
    /// stream.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        expected_len: usize,
    ) -> Poll<io::Result<usize>> {
        let wanted_len = expected_len.max(READ_BYTES_MIN);
        if self.buffer.capacity() - self.buffer.len() < wanted_len {
            self.buffer.reserve(wanted_len.max(BUFFER_BYTES));
        }
        poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.buffer)
    }
}
