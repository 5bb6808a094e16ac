//! One attempt on workers that are leased, up to decode's first byte. Of a pair whose workers meet by bootstrap it draws rooms,
//! splices the bootstrap fields into the client's bytes and runs both legs (`leg`) at once; the other way to hand KV over is
//! `sequential`.

use super::failure::{LegFailure, LegFault};
use super::leg::{self, LegStart};
use super::response::{DecodeResponse, PairResponse, PrefillLeg};
use super::sequential;
use crate::client::ClientError;
use crate::clock;
use crate::logprobs::{AnswerShape, PromptLogprobs};
use crate::request::{ClientRequest, RoomCount};
use crate::rooms::RoomRange;
use crate::route::{PrefillDecodePair, Route};
use crate::router::Router;
use crate::splice::Bootstrap;
use crate::workers::{Handover, Lease, Worker};
use bytes::Bytes;
use http::Method;
use http::uri::PathAndQuery;
use pd_protocol::Role;
use std::sync::Arc;

pub(super) async fn start(
    router: &Arc<Router>,
    request: &ClientRequest,
    route: Route,
) -> Result<Box<DecodeResponse>, LegFailure> {
    match route {
        Route::Pair(pair) => match pair.handover {
            Handover::Bootstrap => start_pair(router, request, pair).await,
            Handover::TransferParams => sequential::start(router, request, pair).await,
        },
        Route::Unified(lease) => start_unified(router, request, lease).await,
    }
}

async fn start_pair(
    router: &Arc<Router>,
    request: &ClientRequest,
    pair: PrefillDecodePair,
) -> Result<Box<DecodeResponse>, LegFailure> {
    let rooms = router.rooms.draw(request.routing.rooms.get(), rand::random);
    let body = spliced(request, &pair, &rooms);
    let now = clock::unix_ns();
    let entry = router
        .timeline
        .open(rooms.first(), rooms.count(), request.accepted_unix_ns, now);
    if let Some(span) = &request.span {
        span.set_room(rooms.first());
    }
    let workers = Workers::of(&pair);
    let wanted = request.routing.prompt_logprobs;
    let prefill = leg_start(router, request, pair.prefill, body.clone());
    let decode = leg_start(router, request, pair.decode, body);
    let prefill: PrefillLeg = Box::pin(leg::prefill(prefill, wanted.is_some()));
    let legs = Legs {
        prefill: Some(prefill),
        logprobs: None,
        wanted,
    };
    let started = tokio::select! {
        started = legs.run(leg::decode(decode, Role::Decode)) => started,
        role = workers.silent() => Err((role, ClientError::Silent.into())),
    };
    match started {
        Ok((mut response, legs)) => {
            response.pair = Some(PairResponse {
                prefill: workers.prefill,
                prefill_leg: legs.prefill,
                rooms: Some((rooms, entry)),
                logprobs: legs.logprobs,
            });
            Ok(response)
        }
        Err((role, fault)) => Err(workers.failure(role, fault)),
    }
}

/// The workers of a pair, whose leases are with its legs.
pub(super) struct Workers {
    pub(super) prefill: Arc<Worker>,
    pub(super) decode: Arc<Worker>,
}

// === impl Workers ===

impl Workers {
    pub(super) fn of(pair: &PrefillDecodePair) -> Self {
        Self {
            prefill: Arc::clone(pair.prefill.worker()),
            decode: Arc::clone(pair.decode.worker()),
        }
    }

    /// Waits until one of them is silent, and says which.
    pub(super) async fn silent(&self) -> Role {
        tokio::select! {
            () = self.prefill.silence().wait() => Role::Prefill,
            () = self.decode.silence().wait() => Role::Decode,
        }
    }

    /// The failure of the one in `role`.
    pub(super) fn failure(self, role: Role, fault: LegFault) -> LegFailure {
        let (worker, peer) = match role {
            Role::Prefill => (self.prefill, self.decode),
            Role::Decode | Role::Unified => (self.decode, self.prefill),
        };
        LegFailure {
            role,
            worker,
            peer: Some(peer),
            fault,
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
        decode: impl Future<Output = Result<Box<DecodeResponse>, LegFault>>,
    ) -> Result<(Box<DecodeResponse>, Self), (Role, LegFault)> {
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
    request: &ClientRequest,
    lease: Lease,
) -> Result<Box<DecodeResponse>, LegFailure> {
    let worker = Arc::clone(lease.worker());
    let leg = leg_start(router, request, lease, request.body.clone());
    let response = tokio::select! {
        response = leg::decode(leg, Role::Unified) => response,
        () = worker.silence().wait() => Err(ClientError::Silent.into()),
    };
    response.map_err(|fault| LegFailure {
        role: Role::Unified,
        worker,
        peer: None,
        fault,
    })
}

fn spliced(request: &ClientRequest, pair: &PrefillDecodePair, rooms: &RoomRange) -> Bytes {
    let bootstrap = Bootstrap {
        host_json: &pair.prefill.worker().bootstrap_host_json,
        port: pair.bootstrap_port,
        room: rooms.first(),
        array_len: match request.routing.rooms {
            RoomCount::One => None,
            RoomCount::Many(count) => Some(count),
        },
    };
    let points = &request.routing.splice_points;
    points.splice(&request.body, &bootstrap)
}

pub(super) fn leg_start(
    router: &Router,
    request: &ClientRequest,
    lease: Lease,
    body: Bytes,
) -> LegStart {
    let path = PathAndQuery::from_static(request.api.path());
    let worker = lease.worker();
    if let Some(span) = &request.span {
        let (key, event) = match worker.spec.role {
            Role::Prefill => ("pdserve.prefill", "prefill asked"),
            Role::Decode => ("pdserve.decode", "decode asked"),
            Role::Unified => ("pdserve.worker", "worker asked"),
        };
        span.set(key, worker.id().to_owned());
        span.event(event);
    }
    let client = &worker.client;
    LegStart {
        request: client.request(&Method::POST, &path, &request.headers, body),
        lease,
        metrics: Arc::clone(&router.metrics),
    }
}
