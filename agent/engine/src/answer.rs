//! The queue of one answer, from the scheduler to its reader, bounded by bytes.
//!
//! The scheduler cannot wait for a reader: the request's pages and its slot in the batch are everybody's. A reader that
//! falls too far behind therefore loses its answer.

use crate::command::{Command, CommandSender, RequestId};
use crate::request::{FinishReason, TokenEvent, TokenLogprob};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Bytes of an answer that may wait for its reader: tens of thousands of tokens, or some thousands with many log
/// probabilities each.
const WAITING_BYTES_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct AnswerSender {
    events_tx: mpsc::UnboundedSender<TokenEvent>,
    waiting: Arc<AtomicUsize>,
    id: RequestId,
    /// `None` once the reader was given up.
    commands_tx: Option<CommandSender>,
}

#[derive(Debug)]
pub(crate) struct AnswerReceiver {
    events_rx: mpsc::UnboundedReceiver<TokenEvent>,
    waiting: Arc<AtomicUsize>,
}

/// The queue for a request's answer; `commands_tx` takes the abort of one that is not read.
pub(crate) fn answer(id: RequestId, commands_tx: CommandSender) -> (AnswerSender, AnswerReceiver) {
    // Bounded by `WAITING_BYTES_MAX`.
    let (events_tx, events_rx) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let receiver = AnswerReceiver {
        events_rx,
        waiting: Arc::clone(&waiting),
    };
    let sender = AnswerSender {
        events_tx,
        waiting,
        id,
        commands_tx: Some(commands_tx),
    };
    (sender, receiver)
}

// === impl AnswerSender ===

impl AnswerSender {
    /// Queues an event. A reader that is gone has sent an abort; where too much waits for one that is not, the answer
    /// ends here, and the scheduler receives the abort.
    pub(crate) fn send(&mut self, event: TokenEvent) {
        let Some(commands_tx) = &self.commands_tx else {
            return;
        };
        // However large the first that waits: prompts have their log probabilities in one event. The last has its
        // place.
        if event.finish.is_some() || self.waiting.load(Ordering::Relaxed) <= WAITING_BYTES_MAX {
            self.push(event);
            return;
        }
        // A scheduler that has ended has aborted everything.
        let _ = commands_tx.send(Command::Abort(self.id));
        self.commands_tx = None;
        let mib = WAITING_BYTES_MAX >> 20;
        let reason = format!(
            "{mib} MiB of the answer wait to be read; read faster, or ask for fewer log probabilities"
        );
        tracing::warn!(id = self.id.0, reason, "gave up a reader");
        self.push(TokenEvent {
            finish: Some(FinishReason::Abort {
                reason,
                retriable: false,
            }),
            ..TokenEvent::default()
        });
    }

    /// Queues the last event of an answer that ends early.
    pub(crate) fn end(&self, event: TokenEvent) {
        if self.commands_tx.is_some() {
            self.push(event);
        }
    }

    fn push(&self, event: TokenEvent) {
        self.waiting.fetch_add(bytes_of(&event), Ordering::Relaxed);
        let _ = self.events_tx.send(event);
    }
}

// === impl AnswerReceiver ===

impl AnswerReceiver {
    pub(crate) async fn recv(&mut self) -> Option<TokenEvent> {
        let event = self.events_rx.recv().await;
        self.taken(event)
    }

    pub(crate) fn try_recv(&mut self) -> Option<TokenEvent> {
        let event = self.events_rx.try_recv().ok();
        self.taken(event)
    }

    pub(crate) fn blocking_recv(&mut self) -> Option<TokenEvent> {
        let event = self.events_rx.blocking_recv();
        self.taken(event)
    }

    fn taken(&self, event: Option<TokenEvent>) -> Option<TokenEvent> {
        let bytes = event.as_ref().map_or(0, bytes_of);
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        event
    }
}

/// Memory of an event while it waits.
fn bytes_of(event: &TokenEvent) -> usize {
    let of = |logprobs: &Vec<TokenLogprob>| {
        let lists = |logprob: &TokenLogprob| {
            logprob.top.capacity() * size_of::<(u32, f32)>()
                + logprob.asked.capacity() * size_of::<f32>()
        };
        logprobs.capacity() * size_of::<TokenLogprob>() + logprobs.iter().map(lists).sum::<usize>()
    };
    size_of::<TokenEvent>()
        + event.token_ids.capacity() * size_of::<u32>()
        + of(&event.logprobs)
        + of(&event.prompt_logprobs)
}

#[cfg(test)]
mod tests;
