//! State that the handles and the scheduler's thread share, and the guards that count a request as
//! in flight, detect a lost reader, and stop the engine with its last handle.

use super::info::EngineInfo;
use super::request::SubmitError;
use super::{Command, CommandSender, RequestId};
use crate::metrics::EngineMetrics;
use crate::text::{ChatTemplate, Tokenizer};
use crate::timeline::Timelines;
use parking_lot::Mutex;
use pd_kv_transfer::Failure;
use pd_protocol::BootstrapRoom;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The parts that [`Shared`] is built from.
pub(crate) struct SharedParts {
    pub(crate) commands_tx: CommandSender,
    pub(crate) info: EngineInfo,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) chat_template: Option<ChatTemplate>,
    pub(crate) metrics: EngineMetrics,
    pub(crate) timelines: Arc<Timelines>,
    pub(crate) max_requests: u64,
    /// Failure of a pair's KV transfer.
    pub(crate) transfer_failure: Option<Failure>,
}

pub(crate) struct Shared {
    pub(super) commands_tx: CommandSender,
    pub(super) info: EngineInfo,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) chat_template: Option<ChatTemplate>,
    pub(super) metrics: EngineMetrics,
    pub(super) timelines: Arc<Timelines>,
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) cordoned: AtomicBool,
    pub(super) draining: AtomicBool,
    pub(super) next_id: AtomicU64,
    pub(super) in_flight: AtomicU64,
    /// Running and waiting requests together.
    pub(super) max_requests: u64,
    pub(super) transfer_failure: Option<Failure>,
    pub(super) rooms: Mutex<HashSet<BootstrapRoom>>,
}

/// Counts a request, and reserves its room, from admission until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    shared: Arc<Shared>,
    room: Option<BootstrapRoom>,
}

/// Notifies the scheduler that a request's reader is gone, unless disarmed.
#[derive(Debug)]
pub(crate) struct AbortOnDrop {
    pub(super) id: RequestId,
    pub(super) commands_tx: Option<CommandSender>,
}

/// Stops the scheduler when the last handle is dropped; readers of answers do not keep it alive.
#[derive(Debug)]
pub(super) struct StopOnDrop {
    pub(super) commands_tx: CommandSender,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(parts: SharedParts) -> Self {
        let SharedParts {
            commands_tx,
            info,
            tokenizer,
            chat_template,
            metrics,
            timelines,
            max_requests,
            transfer_failure,
        } = parts;
        Self {
            commands_tx,
            info,
            tokenizer,
            chat_template,
            metrics,
            timelines,
            stopped: Arc::default(),
            cordoned: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            in_flight: AtomicU64::new(0),
            max_requests,
            transfer_failure,
            rooms: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

// === impl StopOnDrop ===

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // If the scheduler has ended, there is nothing left to stop.
        let _ = self.commands_tx.send(Command::Stop);
    }
}

// === impl InFlight ===

impl InFlight {
    pub(super) fn enter(
        shared: &Arc<Shared>,
        room: Option<BootstrapRoom>,
    ) -> Result<Self, SubmitError> {
        let limit = shared.max_requests;
        let counted = shared
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < limit).then_some(n + 1)
            });
        if counted.is_err() {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            return Err(SubmitError::QueueFull { limit });
        }
        if let Some(taken) = room.filter(|&room| !shared.rooms.lock().insert(room)) {
            shared.in_flight.fetch_sub(1, Ordering::AcqRel);
            return Err(SubmitError::RoomInUse(taken));
        }
        Ok(Self {
            shared: shared.clone(),
            room,
        })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(room) = self.room {
            self.shared.rooms.lock().remove(&room);
        }
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl AbortOnDrop ===

impl AbortOnDrop {
    pub(crate) fn is_armed(&self) -> bool {
        self.commands_tx.is_some()
    }

    pub(crate) fn disarm(&mut self) {
        self.commands_tx = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(commands_tx) = self.commands_tx.take() {
            // A scheduler that has ended has aborted everything.
            let _ = commands_tx.send(Command::Abort(self.id));
        }
    }
}
