//! Bodies that note how far their request is: one from the client, with a deadline between its pieces, and the answer's.

use crate::connections::Connection;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Why a request's body ended early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    /// For so long nothing came.
    pub(crate) limit: Duration,
}

pin_project! {
    /// A request's body.
    pub(crate) struct RequestBody {
        inner: Incoming,
        connection: Arc<Connection>,
        // Armed while a piece is waited for.
        #[pin]
        deadline: Option<Sleep>,
        is_waiting: bool,
    }
}

/// An answer's body, and what ends with it: when the client has all of it, or has left.
#[derive(Debug)]
pub struct AnswerBody<H> {
    inner: axum::body::Body,
    _held: H,
}

/// A request that is being answered. Once it is dropped, the client owes the next one.
pub(crate) struct Answering(Arc<Connection>);

/// Whether a request's body could not be read because its client stalled.
pub(crate) fn stalled<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a Stalled> {
    loop {
        match error.downcast_ref() {
            Some(stalled) => return Some(stalled),
            None => error = error.source()?,
        }
    }
}

// === impl Stalled ===

impl Display for Stalled {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "nothing of the body came for {:?}", self.limit)
    }
}

impl Error for Stalled {}

// === impl RequestBody ===

impl RequestBody {
    pub(crate) fn new(inner: Incoming, connection: Arc<Connection>) -> Self {
        Self {
            inner,
            connection,
            deadline: None,
            is_waiting: false,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut this = self.project();
        if let Poll::Ready(frame) = Pin::new(&mut *this.inner).poll_frame(cx) {
            *this.is_waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let limit = this.connection.limits().body;
        if this.deadline.is_none() {
            this.deadline.set(Some(sleep(limit)));
        } else if let (false, Some(deadline)) =
            (*this.is_waiting, this.deadline.as_mut().as_pin_mut())
        {
            deadline.reset(Instant::now() + limit);
        }
        *this.is_waiting = true;
        let deadline = this.deadline.as_pin_mut().expect("it was armed above");
        ready!(deadline.poll(cx));
        this.connection.body_is_late();
        Poll::Ready(Some(Err(Stalled { limit }.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

// === impl AnswerBody ===

impl<H> AnswerBody<H> {
    pub fn new(inner: axum::body::Body, held: H) -> Self {
        Self { inner, _held: held }
    }
}

impl<H: Unpin> Body for AnswerBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

// === impl Answering ===

impl Answering {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.awaits_request();
    }
}
