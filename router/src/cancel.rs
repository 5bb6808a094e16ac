//! Everything that a request holds while its answer is relayed. Dropping it is the cancellation:
//! a client that leaves drops the answer's body, and with it both legs' connections, the places
//! on the workers and in the queue, and the rooms.

use crate::metrics::Outcome;
use crate::queue::Place;
use crate::request::Api;
use crate::rooms::RoomRange;
use crate::router::Router;
use crate::timeline::{self, Entry};
use crate::workers::Lease;
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Debug)]
pub struct InFlight {
    router: Arc<Router>,
    api: Api,
    accepted: Instant,
    decode: Option<Lease>,
    /// Rooms and their timeline; a unified worker needs none.
    rooms: Option<(RoomRange, Entry)>,
    _place: Place,
    is_settled: bool,
}

/// What an attempt that decode has answered hands over.
#[derive(Debug)]
pub struct Holdings {
    pub decode: Lease,
    pub rooms: Option<(RoomRange, Entry)>,
    pub place: Place,
}

// === impl InFlight ===

impl InFlight {
    pub fn new(router: Arc<Router>, api: Api, accepted: Instant, holdings: Holdings) -> Self {
        Self {
            router,
            api,
            accepted,
            decode: Some(holdings.decode),
            rooms: holdings.rooms,
            _place: holdings.place,
            is_settled: false,
        }
    }

    /// The worker that answers.
    pub fn decode(&self) -> Option<&str> {
        self.decode.as_ref().map(|decode| decode.worker().id())
    }

    /// Decode's first byte is on its way to the client.
    pub fn first_byte(&self) {
        let metrics = &self.router.metrics;
        metrics.first_byte(self.api, self.accepted.elapsed());
        if let Some((_, entry)) = &self.rooms {
            let now = timeline::unix_ns();
            self.router.timeline.mark_first_byte(*entry, now);
        }
    }

    /// Decode's last byte was relayed.
    pub fn complete(mut self) {
        if let Some((_, entry)) = &self.rooms {
            let now = timeline::unix_ns();
            self.router.timeline.mark_done(*entry, now);
        }
        if let Some(decode) = self.decode.take() {
            decode.succeed();
        }
        self.settle(Outcome::Complete);
    }

    /// Decode failed after the first byte; `lost`: its connection broke.
    pub fn broken(mut self, lost: bool) {
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
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.settle(Outcome::Cancelled);
    }
}
