//! The queue of commands to the scheduler.

use super::{Command, EngineStopped, stopped};
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;
use tokio::sync::Notify;

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

    pub(super) fn sent(&self) -> Arc<Notify> {
        Arc::clone(&self.sent)
    }
}
