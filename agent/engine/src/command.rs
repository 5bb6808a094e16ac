//! The queue of commands to the scheduler.

use crate::answer::AnswerSender;
use crate::in_flight::InFlight;
use crate::request::GenerateRequest;
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// The scheduler's thread has ended; `reason` says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has stopped: {reason}")]
pub struct EngineStopped {
    pub reason: String,
}

/// Identifies a request within this process. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(crate) u64);

/// Commands to the scheduler's thread, which `start` spawns; `EventLoop::receive` takes them.
#[derive(Debug)]
pub(crate) enum Command {
    Generate(Box<Submission>),
    Abort(RequestId),
    /// Answers whether no request used the cache and it was cleared.
    FlushCache(oneshot::Sender<bool>),
    /// A change outside the engine: poll the transfers.
    Wake,
    /// With what those in flight are answered.
    Stop(&'static str),
}

/// A validated request on its way to the scheduler.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) id: RequestId,
    pub(crate) request: GenerateRequest,
    pub(crate) answer: AnswerSender,
    pub(crate) in_flight: InFlight,
}

/// Sends commands; clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct CommandSender {
    commands_tx: Sender<Command>,
    /// A scheduler that takes its turns on a runtime waits for this.
    sent: Arc<Notify>,
}

/// Bounded by the requests in flight and two wake-ups each: at most one per abort and one for the transfers is pending
/// at a time.
pub(crate) fn queue() -> (CommandSender, Receiver<Command>) {
    // See above for its bound.
    let (commands_tx, commands_rx) = crossbeam_channel::unbounded();
    let sender = CommandSender {
        commands_tx,
        sent: Arc::default(),
    };
    (sender, commands_rx)
}

// === impl CommandSender ===

impl CommandSender {
    /// # Errors
    /// The scheduler has ended.
    pub(crate) fn send(&self, command: Command) -> Result<(), EngineStopped> {
        let sent = self.commands_tx.send(command);
        self.sent.notify_one();
        sent.map_err(|_| stopped())
    }

    pub(crate) fn sent(&self) -> Arc<Notify> {
        Arc::clone(&self.sent)
    }
}

pub(crate) fn stopped() -> EngineStopped {
    let reason = "its scheduler has ended; see the log".to_owned();
    EngineStopped { reason }
}
