//! Decode's answer on its way to the client, frame by frame as it arrives. The relay is the
//! response's body: it is polled when the client can take more, so a slow client slows decode and
//! not the router's memory; and it is dropped when the client leaves, which ends both legs.

mod head;
mod in_flight;
mod transform;

use crate::client::{ClientError, Incoming};
use crate::clock::{Sleep, sleep_until, timeout};
use crate::dispatch::{DecodeResponse, PrefillLeg};
use crate::queue::AdmissionPermit;
use crate::request::ClientRequest;
use crate::router::Router;
use crate::sse;
use crate::workers::Silence;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use in_flight::InFlight;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use transform::Transform;

/// Prefill's answer trails decode's by at most this, or its connection is given up.
const PREFILL_TRAIL_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Relay {
    first: Option<Bytes>,
    decode: Incoming,
    /// Prefill's leg while it has not ended.
    prefill: Option<PrefillLeg>,
    /// `None` once the answer has ended.
    in_flight: Option<InFlight>,
    deadline: Pin<Box<Sleep>>,
    silence: Silence,
    transform: Transform,
}

/// Why an answer was cut off: a stream of events ends with this as its last one, any other by closing the connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("the decode worker's answer broke off: {0}")]
    Decode(#[source] ClientError),
    #[error("the request took longer than the router allows (--request-timeout-secs)")]
    Timeout,
}

/// Makes the response of an answer that has begun.
pub(crate) fn respond(
    router: &Arc<Router>,
    request: &ClientRequest,
    response: Box<DecodeResponse>,
    permit: AdmissionPermit,
) -> Response {
    let deadline = request.accepted + router.request_timeout;
    let is_complete = response.is_complete();
    let DecodeResponse {
        head,
        first,
        rest,
        lease,
        pair,
    } = *response;
    let is_stream = sse::is_event_stream(&head.headers);
    let response_head = head::build(head, &lease, pair.as_ref());
    let (prefill, rooms, logprobs) = match pair {
        Some(pair) => (pair.prefill_leg, pair.rooms, pair.logprobs),
        None => (None, None, None),
    };
    let silence = lease.worker().silence();
    let in_flight = InFlight::new(Arc::clone(router), request, lease, rooms, permit);
    in_flight.first_byte();
    let transform = Transform::new(is_stream, logprobs);
    let body = match (is_complete, transform.is_verbatim()) {
        (true, true) => {
            in_flight.complete();
            trail(prefill);
            Body::from(first.unwrap_or_default())
        }
        _ => Body::new(Relay {
            first,
            decode: rest,
            prefill,
            in_flight: Some(in_flight),
            deadline: Box::pin(sleep_until(deadline)),
            silence,
            transform,
        }),
    };
    Response::from_parts(response_head, body)
}

/// Lets prefill's leg end after decode's answer has. Dropping it now would show prefill that the
/// request was given up.
fn trail(prefill: Option<PrefillLeg>) {
    if let Some(prefill) = prefill {
        tokio::spawn(async move {
            if let Ok(Err(fault)) = timeout(PREFILL_TRAIL_MAX, prefill).await {
                tracing::debug!("prefill's leg ended after its request: {fault}");
            }
        });
    }
}

// === impl Relay ===

impl Relay {
    /// The next bytes for the client; `None` at the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RelayError>>> {
        loop {
            if self.in_flight.is_none() {
                return Poll::Ready(None);
            }
            let data = match ready!(self.poll_decode(cx)) {
                Some(Ok(data)) => {
                    // No one polls for the end of an answer whose length is known.
                    if self.decode.is_end_stream() && self.transform.is_verbatim() {
                        self.complete();
                    }
                    self.transform.pass(data)
                }
                Some(Err(error)) => return Poll::Ready(self.break_off(error)),
                None => {
                    let rest = self.transform.finish();
                    self.complete();
                    rest
                }
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }

    fn poll_decode(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RelayError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        self.poll_prefill(cx);
        match self.decode.poll_data(cx) {
            Poll::Ready(data) => {
                self.silence.went_on();
                Poll::Ready(data.map(|data| data.map_err(RelayError::Decode)))
            }
            Poll::Pending => {
                if self.silence.poll(cx).is_ready() {
                    let silent = RelayError::Decode(ClientError::Silent);
                    return Poll::Ready(Some(Err(silent)));
                }
                ready!(self.deadline.as_mut().poll(cx));
                Poll::Ready(Some(Err(RelayError::Timeout)))
            }
        }
    }

    /// Drives prefill's leg. Its failure now is decode's to report: the KV that decode has read
    /// from may be complete.
    fn poll_prefill(&mut self, cx: &mut Context<'_>) {
        if let Some(prefill) = &mut self.prefill
            && let Poll::Ready(ended) = prefill.as_mut().poll(cx)
        {
            self.prefill = None;
            if let Err(fault) = ended {
                tracing::warn!("prefill's leg failed after decode had begun: {fault}");
            }
        }
    }

    fn complete(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.complete();
        }
        trail(self.prefill.take());
    }

    /// Ends the answer early: a stream with an error event, anything else with a closed
    /// connection.
    fn break_off(&mut self, error: RelayError) -> Option<Result<Bytes, RelayError>> {
        let decode = self.in_flight.as_ref().and_then(InFlight::decode);
        tracing::warn!(decode, "an answer was cut off: {error}");
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.broken(matches!(error, RelayError::Decode(_)));
        }
        self.prefill = None;
        match self.transform.error_event(&error) {
            Some(event) => Some(Ok(event)),
            None => Some(Err(error)),
        }
    }
}

impl http_body::Body for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let data = ready!(self.get_mut().poll_data(cx));
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.in_flight.is_none()
    }
}
