//! One attempt: rooms drawn, fields spliced, both legs under way, up to decode's first byte.

use super::leg::{self, DecodeStart, LegStart, PrefillLeg};
use super::{Call, LegFailure, LegFault};
use crate::client::Incoming;
use crate::logprobs::{AnswerShape, PromptLogprobs};
use crate::request::RoomCount;
use crate::rooms::RoomRange;
use crate::route::{PrefillDecodePair, Route};
use crate::router::Router;
use crate::splice::Bootstrap;
use crate::timeline::{self, Entry};
use crate::workers::{Lease, Worker};
use bytes::Bytes;
use http::Method;
use http::response::Parts;
use http::uri::PathAndQuery;
use pd_protocol::Role;
use std::sync::Arc;

/// An answer that has begun.
pub(crate) struct Started {
    pub(crate) head: Parts,
    pub(crate) first: Option<Bytes>,
    pub(crate) rest: Incoming,
    pub(crate) is_complete: bool,
    pub(crate) decode: Lease,
    pub(crate) pair: Option<PairStarted>,
}

/// What only a pair's answer has.
pub(crate) struct PairStarted {
    pub(crate) prefill: Arc<Worker>,
    /// Prefill's leg, if it has not ended.
    pub(crate) prefill_leg: Option<PrefillLeg>,
    pub(crate) rooms: RoomRange,
    pub(crate) timeline: Entry,
    /// To be merged into decode's answer.
    pub(crate) logprobs: Option<PromptLogprobs>,
}

pub(super) async fn start(
    router: &Arc<Router>,
    call: &Call,
    route: Route,
) -> Result<Started, LegFailure> {
    match route {
        Route::Pair(pair) => start_pair(router, call, pair).await,
        Route::Unified(lease) => start_unified(router, call, lease).await,
    }
}

async fn start_pair(
    router: &Arc<Router>,
    call: &Call,
    pair: PrefillDecodePair,
) -> Result<Started, LegFailure> {
    let rooms = router.rooms.draw(call.routing.rooms.get(), rand::random);
    let body = spliced(call, &pair, &rooms);
    let now = timeline::unix_ns();
    let entry = router
        .timeline
        .open(rooms.first(), rooms.count(), call.accepted_unix_ns, now);
    let workers = (
        Arc::clone(pair.prefill.worker()),
        Arc::clone(pair.decode.worker()),
    );
    let wanted = call.routing.prompt_logprobs;
    let prefill = leg_start(router, call, pair.prefill, body.clone());
    let decode = leg_start(router, call, pair.decode, body);
    let prefill: PrefillLeg = Box::pin(leg::prefill(prefill, wanted.is_some()));
    let legs = Legs {
        prefill: Some(prefill),
        logprobs: None,
        wanted,
    };
    match legs.run(leg::decode(decode, Role::Decode)).await {
        Ok((started, legs)) => Ok(Started::new(
            started,
            Some(PairStarted {
                prefill: workers.0,
                prefill_leg: legs.prefill,
                rooms,
                timeline: entry,
                logprobs: legs.logprobs,
            }),
        )),
        Err((role, fault)) => {
            let (worker, peer) = match role {
                Role::Prefill => workers,
                Role::Decode | Role::Unified => (workers.1, workers.0),
            };
            Err(LegFailure {
                role,
                worker,
                peer: Some(peer),
                fault,
            })
        }
    }
}

/// Both legs of one attempt.
struct Legs {
    /// `None` once it has ended well.
    prefill: Option<PrefillLeg>,
    logprobs: Option<PromptLogprobs>,
    /// Set if prefill's body is waited for.
    wanted: Option<AnswerShape>,
}

// === impl Legs ===

impl Legs {
    /// Runs both until decode's first byte is here, and prefill's body if that is wanted. The
    /// first fault ends both.
    async fn run(
        mut self,
        decode: impl Future<Output = Result<DecodeStart, LegFault>>,
    ) -> Result<(DecodeStart, Self), (Role, LegFault)> {
        tokio::pin!(decode);
        let mut started = None;
        loop {
            if started.is_some() && (self.wanted.is_none() || self.prefill.is_none()) {
                break;
            }
            tokio::select! {
                biased;
                body = ended(&mut self.prefill) => {
                    let body = body.map_err(|fault| (Role::Prefill, fault))?;
                    self.prefill = None;
                    if let Some(shape) = self.wanted {
                        self.logprobs = Some(PromptLogprobs::read(shape, &body));
                    }
                }
                first = &mut decode, if started.is_none() => {
                    started = Some(first.map_err(|fault| (Role::Decode, fault))?);
                }
            }
        }
        Ok((
            started.expect("the loop ends when decode has started"),
            self,
        ))
    }
}

/// Waits for the end of a leg that has not ended yet, else forever.
async fn ended(leg: &mut Option<PrefillLeg>) -> Result<Bytes, LegFault> {
    match leg {
        Some(leg) => leg.await,
        None => std::future::pending().await,
    }
}

async fn start_unified(
    router: &Arc<Router>,
    call: &Call,
    lease: Lease,
) -> Result<Started, LegFailure> {
    let worker = Arc::clone(lease.worker());
    let leg = leg_start(router, call, lease, call.body.clone());
    match leg::decode(leg, Role::Unified).await {
        Ok(started) => Ok(Started::new(started, None)),
        Err(fault) => Err(LegFailure {
            role: Role::Unified,
            worker,
            peer: None,
            fault,
        }),
    }
}

fn spliced(call: &Call, pair: &PrefillDecodePair, rooms: &RoomRange) -> Bytes {
    let bootstrap = Bootstrap {
        host_json: &pair.prefill.worker().bootstrap_host_json,
        port: pair.bootstrap_port,
        room: rooms.first(),
        array_len: match call.routing.rooms {
            RoomCount::One => None,
            RoomCount::Many(count) => Some(count),
        },
    };
    call.routing.target.splice(&call.body, &bootstrap)
}

fn leg_start(router: &Router, call: &Call, lease: Lease, body: Bytes) -> LegStart {
    let path = PathAndQuery::from_static(call.api.path());
    let client = &lease.worker().client;
    LegStart {
        request: client.request(&Method::POST, &path, &call.headers, body),
        lease,
        metrics: Arc::clone(&router.metrics),
    }
}

// === impl Started ===

impl Started {
    fn new(decode: DecodeStart, pair: Option<PairStarted>) -> Self {
        let is_complete = decode.is_complete();
        let DecodeStart {
            head,
            first,
            rest,
            lease,
        } = decode;
        Self {
            head,
            first,
            rest,
            is_complete,
            decode: lease,
            pair,
        }
    }
}
