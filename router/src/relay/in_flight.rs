//! What a request holds beside its legs, which are the relay's, while its answer is relayed. Dropping both is the
//! cancellation: a client that leaves drops the answer's body, and with it both legs' connections, the leases of the
//! workers, the admission permit and the rooms.

use crate::clock::{self, Instant};
use crate::metrics::Outcome;
use crate::queue::AdmissionPermit;
use crate::request::{Api, ClientRequest};
use crate::rooms::RoomRange;
use crate::router::Router;
use crate::timeline::Entry;
use crate::workers::Lease;
use pd_spans::RequestSpan;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct InFlight {
    router: Arc<Router>,
    api: Api,
    accepted: Instant,
    decode: Option<Lease>,
    /// Rooms and their timeline; a unified worker needs none.
    rooms: Option<(RoomRange, Entry)>,
    span: Option<RequestSpan>,
    _permit: AdmissionPermit,
    is_settled: bool,
}

// === impl InFlight ===

impl InFlight {
    pub(super) fn new(
        router: Arc<Router>,
        request: &ClientRequest,
        decode: Lease,
        rooms: Option<(RoomRange, Entry)>,
        permit: AdmissionPermit,
    ) -> Self {
        Self {
            router,
            api: request.api,
            accepted: request.accepted,
            decode: Some(decode),
            rooms,
            span: request.span.clone(),
            _permit: permit,
            is_settled: false,
        }
    }

    /// The worker that answers.
    pub(super) fn decode(&self) -> Option<&str> {
        self.decode.as_ref().map(|decode| decode.worker().id())
    }

    /// Decode's first byte is on its way to the client.
    pub(super) fn first_byte(&self) {
        let metrics = &self.router.metrics;
        metrics.first_byte(self.api, self.accepted.elapsed());
        if let Some(span) = &self.span {
            span.event("first byte");
        }
        if let Some((_, entry)) = &self.rooms {
            let now = clock::unix_ns();
            self.router.timeline.mark_first_byte(*entry, now);
        }
    }

    /// Decode's last byte was relayed.
    pub(super) fn complete(mut self) {
        if let Some((_, entry)) = &self.rooms {
            let now = clock::unix_ns();
            self.router.timeline.mark_done(*entry, now);
        }
        if let Some(decode) = self.decode.take() {
            decode.succeed();
        }
        self.settle(Outcome::Complete);
    }

    /// Decode failed after the first byte; `lost`: its connection broke.
    pub(super) fn broken(mut self, lost: bool) {
        match self.decode.take() {
            Some(decode) if lost => decode.fail_unreached(Instant::now()),
            Some(_) | None => {}
        }
        self.settle(Outcome::Broken);
    }

    fn settle(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_settled, true) {
            let metrics = &self.router.metrics;
            metrics.ended(self.api, outcome, self.accepted.elapsed());
            if let Some(span) = &self.span {
                span.set("pdserve.outcome", outcome.label());
                if outcome == Outcome::Broken {
                    span.failed("decode failed after its first byte".to_owned());
                }
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.settle(Outcome::Cancelled);
    }
}
