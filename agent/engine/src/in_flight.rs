//! Requests in flight: how many, and the rooms they reserve.

use crate::request::SubmitError;
use parking_lot::Mutex;
use pd_protocol::BootstrapRoom;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All requests from their admission until the scheduler drops them.
#[derive(Debug)]
pub(crate) struct InFlightRequests {
    count: AtomicU64,
    /// Running and waiting requests together.
    max: u64,
    rooms: Mutex<HashSet<BootstrapRoom>>,
}

/// Counts a request, and reserves its room, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    all: Arc<InFlightRequests>,
    room: Option<BootstrapRoom>,
}

// === impl InFlightRequests ===

impl InFlightRequests {
    pub(crate) fn new(max: u64) -> Self {
        Self {
            count: AtomicU64::new(0),
            max,
            rooms: Mutex::default(),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// # Errors
    /// When there are too many requests, or one has the room already.
    pub(crate) fn enter(
        self: &Arc<Self>,
        room: Option<BootstrapRoom>,
    ) -> Result<InFlight, SubmitError> {
        let max = self.max;
        let below = |n| (n < max).then_some(n + 1);
        let counted = self
            .count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, below);
        if counted.is_err() {
            let limit = usize::try_from(max).unwrap_or(usize::MAX);
            return Err(SubmitError::QueueFull { limit });
        }
        if let Some(taken) = room.filter(|&room| !self.rooms.lock().insert(room)) {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return Err(SubmitError::RoomInUse(taken));
        }
        let all = self.clone();
        Ok(InFlight { all, room })
    }
}

// === impl InFlight ===

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(room) = self.room {
            self.all.rooms.lock().remove(&room);
        }
        self.all.count.fetch_sub(1, Ordering::AcqRel);
    }
}
