//! Connects a rail's lanes to the peer's ends. The kernel resolves the peer's address for a second per
//! call, which is too short under load, so the call is repeated.

use pd_verbs::queue_pair::{ConnectError, Init, Rtr};
use pd_verbs::{Endpoint, PathOptions, QueuePair};
use std::collections::VecDeque;

/// How often a rail asks for its peer: all its tries end before decode stops waiting for rails.
pub(crate) const RESOLVE_TRIES: u32 = 4;

/// None of them writes before all are connected.
pub(super) struct Connecting {
    waiting: VecDeque<(QueuePair<Init>, Endpoint)>,
    connected: Vec<QueuePair<Rtr>>,
    tries_left: u32,
}

pub(super) enum Step {
    Connected(Vec<QueuePair<Rtr>>),
    /// The peer was not found in time.
    Later(Connecting),
}

// === impl Connecting ===

impl Connecting {
    pub(super) fn new(lanes: impl IntoIterator<Item = (QueuePair<Init>, Endpoint)>) -> Self {
        Self {
            waiting: lanes.into_iter().collect(),
            connected: Vec::new(),
            tries_left: RESOLVE_TRIES,
        }
    }

    /// Connects what waits, until a peer is not found. May block for a second.
    ///
    /// # Errors
    /// A device refuses, or the tries are used up; all lanes are gone then.
    pub(super) fn step(mut self, path: PathOptions) -> Result<Step, ConnectError> {
        while let Some((end, remote)) = self.waiting.pop_front() {
            let unconnected = match end.connect(&remote, path) {
                Ok(lane) => {
                    self.connected.push(lane);
                    continue;
                }
                Err(unconnected) => unconnected,
            };
            self.tries_left -= 1;
            let Some(end) = unconnected.end.filter(|_| self.tries_left > 0) else {
                return Err(unconnected.error);
            };
            self.waiting.push_front((*end, remote));
            return Ok(Step::Later(self));
        }
        Ok(Step::Connected(self.connected))
    }
}
