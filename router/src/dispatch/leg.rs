//! The two legs of a request. Each holds its lease and settles it: prefill's when its answer has
//! ended, decode's only if it fails before its first byte, since the relay goes on with it.

use super::failure::LegFault;
use super::response::DecodeResponse;
use crate::client::{Incoming, Outgoing, read_body};
use crate::clock::{Instant, timeout};
use crate::metrics::Metrics;
use crate::sse;
use crate::workers::Lease;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, StatusCode};
use pd_protocol::Role;
use std::sync::Arc;
use std::time::Duration;

/// Prefill's answer holds at most one token's text and the prompt's log probabilities.
const PREFILL_BODY_BYTES_MAX: usize = 256 << 20;
/// An error message longer than this is cut off.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;
/// The rest of an error message is not waited for longer than this.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// What a leg is begun with.
pub(super) struct LegStart {
    pub(super) request: Outgoing,
    pub(super) lease: Lease,
    pub(super) metrics: Arc<Metrics>,
}

/// Runs prefill's leg. The body is read to its end in any case, so that the connection can be
/// used again, and kept if `wants_body`.
pub(super) async fn prefill(leg: LegStart, wants_body: bool) -> Result<Bytes, LegFault> {
    let LegStart {
        request,
        lease,
        metrics,
    } = leg;
    let dispatched = Instant::now();
    match prefill_exchange(&lease, request, wants_body).await {
        Ok(body) => {
            lease.succeed();
            metrics.prefill_answered(dispatched.elapsed());
            Ok(body)
        }
        Err(fault) => {
            settle_failed(lease, &fault);
            metrics.leg_failed(Role::Prefill, fault.kind());
            Err(fault)
        }
    }
}

async fn prefill_exchange(
    lease: &Lease,
    request: Outgoing,
    wants_body: bool,
) -> Result<Bytes, LegFault> {
    let (head, mut body) = lease.worker().client.send(request).await?;
    if !head.status.is_success() {
        return Err(error_answer(head, body).await);
    }
    if wants_body {
        return Ok(read_body(body, PREFILL_BODY_BYTES_MAX).await?);
    }
    let is_stream = sse::is_event_stream(&head.headers);
    while let Some(data) = body.data().await {
        let data = data?;
        if is_stream && let Some((status, json)) = sse::leading_error(&data) {
            return Err(stream_error(head, status, json));
        }
    }
    Ok(Bytes::new())
}

/// Runs decode's leg up to its first byte. `role` is the worker's own, so that a unified
/// worker is counted as one.
pub(super) async fn decode(leg: LegStart, role: Role) -> Result<Box<DecodeResponse>, LegFault> {
    let LegStart {
        request,
        lease,
        metrics,
    } = leg;
    match decode_exchange(&lease, request).await {
        Ok((head, first, rest)) => Ok(Box::new(DecodeResponse {
            head,
            first,
            rest,
            lease,
            pair: None,
        })),
        Err(fault) => {
            settle_failed(lease, &fault);
            metrics.leg_failed(role, fault.kind());
            Err(fault)
        }
    }
}

async fn decode_exchange(
    lease: &Lease,
    request: Outgoing,
) -> Result<(Parts, Option<Bytes>, Incoming), LegFault> {
    let (head, mut body) = lease.worker().client.send(request).await?;
    if !head.status.is_success() {
        return Err(error_answer(head, body).await);
    }
    let first = body.data().await.transpose()?;
    if let (true, Some(data)) = (sse::is_event_stream(&head.headers), &first)
        && let Some((status, json)) = sse::leading_error(data)
    {
        return Err(stream_error(head, status, json));
    }
    Ok((head, first, body))
}

/// Gives the lease back with the verdict that the fault deserves.
fn settle_failed(lease: Lease, fault: &LegFault) {
    let now = Instant::now();
    match fault {
        LegFault::Transport(error) if error.is_local() => drop(lease),
        LegFault::Transport(_) => lease.fail_unreached(now),
        LegFault::Answer { .. } | LegFault::NoTransferParams if fault.counts() => lease.fail(now),
        // 4xx: the worker is well. 503: it says itself that it is not, which is no verdict.
        LegFault::Answer { head, .. } if head.status.is_client_error() => lease.succeed(),
        LegFault::Answer { .. } | LegFault::NoTransferParams => drop(lease),
    }
}

async fn error_answer(head: Parts, mut body: Incoming) -> LegFault {
    let mut read = Vec::new();
    let whole = async {
        while let Some(Ok(data)) = body.data().await {
            let space = ERROR_BODY_BYTES_MAX - read.len();
            read.extend_from_slice(&data[..data.len().min(space)]);
            if data.len() >= space {
                break;
            }
        }
    };
    // Cut short or late, the part that was read is still the best message.
    let _ = timeout(ERROR_BODY_TIMEOUT, whole).await;
    LegFault::Answer {
        head: Box::new(head),
        body: read.into(),
    }
}

/// A stream that begins with an error is an answer with that error's status.
fn stream_error(mut head: Parts, status: StatusCode, json: Bytes) -> LegFault {
    head.status = status;
    head.headers = HeaderMap::new();
    let json_type = http::HeaderValue::from_static("application/json");
    head.headers.insert(CONTENT_TYPE, json_type);
    LegFault::Answer {
        head: Box::new(head),
        body: json,
    }
}
