//! One client request becomes one request to prefill and one to decode, up to decode's first byte. An attempt begins with
//! `admission` (a permit and workers) and continues in `attempt`: both legs at once (dual dispatch), or where vLLM serves, one
//! after the other (`sequential`). The first failure of either leg ends the other, and the next attempt avoids the worker that
//! failed. The answer is `relay`'s to carry.

mod admission;
mod attempt;
mod failure;
mod leg;
mod response;
mod sequential;

pub(crate) use response::{DecodeResponse, PairResponse, PrefillLeg};

use crate::clock::{Instant, sleep};
use crate::error::ApiError;
use crate::queue::AdmissionPermit;
use crate::request::{Api, ClientRequest};
use crate::route::{Demand, Route};
use crate::router::Router;
use crate::workers::{Handover, Worker};
use failure::LegFailure;
use http::StatusCode;
use pd_protocol::{Role, labels};
use std::sync::Arc;

/// Makes attempts until one is answered or the failure is final. The answer comes with the permit
/// that its request keeps.
///
/// # Errors
/// The client's error when no worker has answered.
pub(crate) async fn dual_dispatch(
    router: &Arc<Router>,
    request: &ClientRequest,
) -> Result<(Box<DecodeResponse>, AdmissionPermit), ApiError> {
    let mut budget = router.queue.budget();
    let mut excluded: Vec<Arc<Worker>> = Vec::new();
    let mut held: Option<AdmissionPermit> = None;
    let mut last: Option<LegFailure> = None;
    let mut retry_idx = 0;
    loop {
        let demand = || demand(request, &excluded);
        let admitted = admission::admit(router, held, demand, &mut budget).await;
        let (permit, route) = admitted.map_err(|refusal| refusal.after(last.as_ref()))?;
        check_pair(request, &route)?;
        let failure = match attempt::start(router, request, route).await {
            Ok(response) => return Ok((response, permit)),
            Err(failure) => failure,
        };
        let is_last = retry_idx == router.retry.retries_max;
        let request_id = request.headers.get(labels::HEADER_REQUEST_ID);
        let retry = !is_last && failure.is_retriable();
        if failure.is_of_client() {
            tracing::debug!(?request_id, "{failure}");
        } else {
            tracing::warn!(?request_id, retry, "{failure}");
        }
        if is_last || !failure.is_retriable() {
            return Err(failure.into());
        }
        exclude(&mut excluded, &failure);
        last = Some(failure);
        held = Some(permit);
        router.metrics.retried();
        let backoff = router.retry.backoff;
        sleep(backoff.jittered(retry_idx, rand::random())).await;
        retry_idx += 1;
    }
}

/// Refuses what a pair of vLLM's cannot serve.
fn check_pair(request: &ClientRequest, route: &Route) -> Result<(), ApiError> {
    match route {
        Route::Pair(pair) if pair.handover == Handover::TransferParams => {}
        Route::Pair(_) | Route::Unified(_) => return Ok(()),
    }
    if request.api == Api::Generate {
        let message = "the workers of this model run vLLM, which has no /generate: use /v1/completions or \
                       /v1/chat/completions";
        return Err(ApiError::invalid(StatusCode::NOT_FOUND, message));
    }
    if request.api == Api::Responses {
        let message = "the workers of this model are a pair of vLLM's, which hand KV over for completions and chats only: \
                       use /v1/chat/completions";
        return Err(ApiError::invalid(StatusCode::NOT_FOUND, message));
    }
    if request.routing.rooms.get() > 1 {
        // They came up while it waited: it would have been split.
        let message = "the workers of this model came up just now: retry";
        return Err(ApiError::unavailable(message).code("no_worker"));
    }
    Ok(())
}

fn demand<'a>(request: &'a ClientRequest, excluded: &'a [Arc<Worker>]) -> Demand<'a> {
    Demand {
        model: request.routing.model.as_deref(),
        prompt_tokens: request.routing.prompt_tokens,
        output_tokens: request.routing.output_tokens,
        excluded,
        now: Instant::now(),
    }
}

/// The worker that failed is not taken again while there is another. Decode that is well but
/// cannot serve may lack its peer's KV, so then the prefill worker is changed too.
fn exclude(excluded: &mut Vec<Arc<Worker>>, failure: &LegFailure) {
    if failure.is_local() {
        return;
    }
    excluded.push(Arc::clone(&failure.worker));
    let may_be_the_peer = failure.role == Role::Decode && !failure.counts();
    if let (true, Some(peer)) = (may_be_the_peer, &failure.peer) {
        excluded.push(Arc::clone(peer));
    }
}
