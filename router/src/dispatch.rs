//! Dual dispatch: one client request becomes one request to prefill and one to decode, started
//! together; decode's answer goes to the client. Until decode's first byte is here, the first
//! failure of either leg ends the other and the attempt is repeated on another pair.

mod admission;
mod attempt;
mod failure;
mod leg;

pub(crate) use admission::Refusal;
pub(crate) use attempt::{PairStarted, Started};
pub use failure::{LegFailure, LegFault};
pub use leg::PrefillLeg;
pub(crate) use leg::is_event_stream;

use crate::api::error::ApiError;
use crate::queue::Place;
use crate::relay;
use crate::request::{Api, Routing};
use crate::route::Demand;
use crate::router::Router;
use crate::workers::Worker;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use pd_protocol::Role;
use std::sync::Arc;
use tokio::time::Instant;

/// A client's request, read and understood.
#[derive(Debug)]
pub struct Call {
    pub api: Api,
    /// Headers for the workers; hop-by-hop ones are gone.
    pub headers: HeaderMap,
    pub body: Bytes,
    pub routing: Routing,
    pub accepted: Instant,
    pub accepted_unix_ns: u64,
}

/// Attempts, until one is answered or the failure is final; relays until `deadline`.
///
/// # Errors
/// The client's error when no worker has answered.
pub async fn dual_dispatch(
    router: &Arc<Router>,
    call: &Call,
    deadline: Instant,
) -> Result<Response, ApiError> {
    let mut patience = router.queue.patience();
    let mut excluded: Vec<Arc<Worker>> = Vec::new();
    let mut held: Option<Place> = None;
    let mut last: Option<LegFailure> = None;
    let mut retry_idx = 0;
    loop {
        let demand = || demand(call, &excluded);
        let admitted = admission::admit(router, held, demand, &mut patience).await;
        let (place, route) = admitted.map_err(|refusal| refusal.after(last.as_ref()))?;
        let failure = match attempt::start(router, call, route).await {
            Ok(started) => return Ok(relay::respond(router, call, started, place, deadline)),
            Err(failure) => failure,
        };
        let is_last = retry_idx == router.retry.retries_max;
        tracing::warn!(
            request_id = ?call.headers.get(pd_protocol::labels::HEADER_REQUEST_ID),
            retry = !is_last && failure.is_retriable(),
            "{failure}",
        );
        if is_last || !failure.is_retriable() {
            return Err(failure.into());
        }
        exclude(&mut excluded, &failure);
        last = Some(failure);
        held = Some(place);
        router.metrics.retried();
        tokio::time::sleep(router.retry.pause(retry_idx, rand::random())).await;
        retry_idx += 1;
    }
}

fn demand<'a>(call: &'a Call, excluded: &'a [Arc<Worker>]) -> Demand<'a> {
    Demand {
        model: call.routing.model.as_deref(),
        prompt_tokens: call.routing.prompt_tokens,
        output_tokens: call.routing.output_tokens,
        excluded,
        now: Instant::now(),
    }
}

/// The worker that failed is not taken again while there is another. Decode that is well but
/// cannot serve may lack its peer's KV, so then the prefill worker is changed too.
fn exclude(excluded: &mut Vec<Arc<Worker>>, failure: &LegFailure) {
    excluded.push(Arc::clone(&failure.worker));
    let may_be_the_peer = failure.role == Role::Decode && !failure.counts();
    if let (true, Some(peer)) = (may_be_the_peer, &failure.peer) {
        excluded.push(Arc::clone(peer));
    }
}
