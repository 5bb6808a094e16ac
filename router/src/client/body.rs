//! An answer's body as it arrives. When its last byte has been taken, its connection goes back to
//! the pool; when it is dropped before, the connection closes.

use super::chunked::Chunked;
use super::connection::Connection;
use super::error::{Break, ClientError};
use super::head::Framing;
use super::pool::Pool;
use crate::clock::Instant;
use bytes::{Buf, Bytes, BytesMut};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A body that announces its length is read in pieces of at most this size.
const PIECE_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Incoming {
    /// `None` once the body has ended.
    connection: Option<Connection>,
    framing: Framing,
    /// Where the connection goes then; `None`: nowhere.
    pool: Option<Arc<Pool>>,
}

// === impl Incoming ===

impl Incoming {
    pub(super) fn new(connection: Connection, framing: Framing, pool: Option<Arc<Pool>>) -> Self {
        let mut body = Self {
            connection: Some(connection),
            framing,
            pool,
        };
        if framing == Framing::Length(0) {
            body.finish();
        }
        body
    }

    /// Whether everything has been taken.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.connection.is_none()
    }

    /// The next bytes, never empty; `None` at the end.
    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, ClientError>> {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ClientError>>> {
        let taken = ready!(self.poll_taken(cx));
        if taken.is_err() {
            self.connection = None;
        }
        Poll::Ready(taken.transpose())
    }

    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ClientError>> {
        loop {
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Ok(None));
            };
            let data = self.framing.take(&mut connection.buffer)?;
            if self.framing.is_complete() {
                self.finish();
            }
            if !data.is_empty() {
                return Poll::Ready(Ok(Some(data)));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Ok(None));
            };
            let read_len = ready!(connection.poll_fill(cx, self.framing.expected_len()));
            match (read_len?, &self.framing) {
                (0, Framing::Close) => self.connection = None,
                (0, Framing::Length(_) | Framing::Chunked(_)) => {
                    return Poll::Ready(Err(Break::BeforeEnd.into()));
                }
                (1.., _) => {}
            }
        }
    }

    /// Gives the connection up, to the pool if it is fit for another request.
    fn finish(&mut self) {
        if let (Some(connection), Some(pool)) = (self.connection.take(), self.pool.take())
            && connection.buffer.is_empty()
        {
            pool.put(connection, Instant::now());
        }
    }
}

// === impl Framing ===

impl Framing {
    /// Takes what of `buffer` belongs to the body.
    fn take(&mut self, buffer: &mut BytesMut) -> Result<Bytes, ClientError> {
        if buffer.is_empty() {
            return Ok(Bytes::new());
        }
        match self {
            Self::Length(left) => {
                let len =
                    usize::try_from(*left).map_or(buffer.len(), |left| left.min(buffer.len()));
                *left -= len as u64;
                Ok(buffer.split_to(len).freeze())
            }
            Self::Chunked(chunked) => {
                let decoded = chunked.decode(buffer)?;
                let mut used = buffer.split_to(decoded.used_len);
                used.truncate(decoded.data.end);
                used.advance(decoded.data.start);
                Ok(used.freeze())
            }
            Self::Close => Ok(buffer.split().freeze()),
        }
    }

    fn is_complete(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunked::Done))
    }

    /// How many bytes the next read may well find.
    fn expected_len(&self) -> usize {
        let left = match self {
            Self::Length(left) | Self::Chunked(Chunked::Data(left)) => *left,
            Self::Chunked(_) | Self::Close => 0,
        };
        usize::try_from(left.min(PIECE_BYTES_MAX)).unwrap_or_default()
    }
}

/// Reads a body to its end; without copying where it arrives in one piece.
///
/// # Errors
/// The transport's, and `TooLarge` beyond `bytes_max`.
pub(crate) async fn read_body(mut body: Incoming, bytes_max: usize) -> Result<Bytes, ClientError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        if first.len() + all.len() + data.len() > bytes_max {
            return Err(ClientError::TooLarge(bytes_max));
        }
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}
