//! State that the handles and the scheduler's thread share, and the guard that stops the engine with its last handle.

use super::replacement::CheckpointForm;
use crate::command::{Command, CommandSender};
use crate::grammar::Grammars;
use crate::in_flight::InFlightRequests;
use crate::info::EngineInfo;
use crate::latch::Latch;
use crate::metrics::EngineMetrics;
use crate::profile::Profiler;
use crate::text::{ChatTemplate, Tokenizer};
use crate::timeline::Timelines;
use pd_kv_transfer::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

pub(super) struct Shared {
    pub(super) commands_tx: CommandSender,
    pub(super) info: EngineInfo,
    /// What a checkpoint must have to take the place of this one.
    pub(super) form: CheckpointForm,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) chat_template: Option<ChatTemplate>,
    pub(super) grammars: Grammars,
    pub(super) metrics: EngineMetrics,
    pub(super) timelines: Arc<Timelines>,
    pub(super) in_flight: Arc<InFlightRequests>,
    pub(super) profiler: Arc<Profiler>,
    /// Failure of a pair's KV transfer.
    pub(super) transfer_failure: Option<Failure>,
    pub(super) state: State,
}

/// The reason that most requests get when their engine ends.
pub(super) const STOPPED: &str = "the engine was stopped";

#[derive(Debug, Default)]
pub(super) struct State {
    /// The scheduler has ended, and given its memory back.
    pub(super) stopped: Arc<Latch>,
    pub(super) cordoned: AtomicBool,
    pub(super) draining: AtomicBool,
    pub(super) last_id: AtomicU64,
}

/// Stops the scheduler when the last handle is dropped; readers of answers do not keep it alive.
#[derive(Debug)]
pub(super) struct StopOnDrop {
    pub(super) commands_tx: CommandSender,
}

// === impl Shared ===

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
        let _ = self.commands_tx.send(Command::Stop(STOPPED));
    }
}
