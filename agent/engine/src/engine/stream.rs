//! `RequestStream`: an answer as its reader gets it.

use crate::answer::AnswerReceiver;
use crate::command::{Command, CommandSender, RequestId};
use crate::request::{FinishReason, TokenEvent};

/// The answer while it is produced. Dropping it before the last event aborts the request.
#[derive(Debug)]
pub struct RequestStream {
    pub(super) events: AnswerReceiver,
    pub(super) abort: AbortOnDrop,
}

/// Notifies the scheduler that a request's reader is gone, unless disarmed.
#[derive(Debug)]
pub(super) struct AbortOnDrop {
    pub(super) id: RequestId,
    pub(super) commands_tx: Option<CommandSender>,
}

// === impl RequestStream ===

impl RequestStream {
    /// The next step of the answer; `None` after the last. If the engine stops, the last event
    /// is an abort.
    pub async fn recv(&mut self) -> Option<TokenEvent> {
        let event = self.events.recv().await;
        self.note(event)
    }

    /// The next step if it is here.
    pub fn try_recv(&mut self) -> Option<TokenEvent> {
        let event = self.events.try_recv()?;
        self.note(Some(event))
    }

    /// As [`Self::recv`], from a thread that may block.
    pub fn blocking_recv(&mut self) -> Option<TokenEvent> {
        let event = self.events.blocking_recv();
        self.note(event)
    }

    fn note(&mut self, event: Option<TokenEvent>) -> Option<TokenEvent> {
        match event {
            Some(event) => {
                if event.finish.is_some() {
                    self.abort.disarm();
                }
                Some(event)
            }
            None if self.abort.is_armed() => {
                self.abort.disarm();
                let reason = "the engine has stopped".to_owned();
                let finish = Some(FinishReason::Abort {
                    reason,
                    retriable: true,
                });
                Some(TokenEvent {
                    finish,
                    ..TokenEvent::default()
                })
            }
            None => None,
        }
    }
}

// === impl AbortOnDrop ===

impl AbortOnDrop {
    fn is_armed(&self) -> bool {
        self.commands_tx.is_some()
    }

    fn disarm(&mut self) {
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
