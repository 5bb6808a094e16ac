//! The merge into a stream, event by event, however the network cut it.

use super::{PromptLogprobs, apply};
use crate::sse::{self, EventSplitter};
use bytes::{Bytes, BytesMut};

/// Merges into a stream of events.
#[derive(Debug)]
pub(crate) struct EventMerger {
    prompt: PromptLogprobs,
    splitter: EventSplitter,
}

// === impl EventMerger ===

impl EventMerger {
    pub(crate) fn new(prompt: PromptLogprobs) -> Self {
        Self {
            prompt,
            splitter: EventSplitter::default(),
        }
    }

    /// Takes bytes of the stream and gives the events that are whole now, merged.
    pub(crate) fn push(&mut self, data: &[u8]) -> Bytes {
        self.splitter.push(data);
        let mut out = BytesMut::new();
        while let Some(event) = self.splitter.next_event() {
            out.extend_from_slice(&self.merge_event(&event));
        }
        out.freeze()
    }

    /// What is left when the stream ends.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.splitter.rest()
    }

    fn merge_event(&mut self, event: &Bytes) -> Bytes {
        if self.prompt.answers.is_empty() {
            return event.clone();
        }
        let Ok(text) = std::str::from_utf8(event) else {
            return event.clone();
        };
        match sse::data(text) {
            Some(data) => apply(event, self.prompt.edits(text, data)),
            None => event.clone(),
        }
    }
}
