//! What happens to decode's answer on its way: nothing, or the prompt's log probabilities are merged
//! in; and how it reports an error.

use crate::error::ApiError;
use crate::logprobs::{EventMerger, PromptLogprobs};
use crate::sse::{self, Boundary};
use bytes::{Bytes, BytesMut};
use std::fmt::Display;

pub(super) enum Transform {
    Plain,
    Events(Boundary),
    MergedEvents {
        merger: EventMerger,
        boundary: Boundary,
    },
    /// Held back until it is whole.
    MergedPlain {
        prompt: PromptLogprobs,
        whole: BytesMut,
    },
}

// === impl Transform ===

impl Transform {
    pub(super) fn new(is_stream: bool, logprobs: Option<PromptLogprobs>) -> Self {
        match (is_stream, logprobs) {
            (false, None) => Self::Plain,
            (true, None) => Self::Events(Boundary::default()),
            (true, Some(prompt)) => Self::MergedEvents {
                merger: EventMerger::new(prompt),
                boundary: Boundary::default(),
            },
            (false, Some(prompt)) => Self::MergedPlain {
                prompt,
                whole: BytesMut::new(),
            },
        }
    }

    /// Whether bytes pass unchanged.
    pub(super) fn is_verbatim(&self) -> bool {
        matches!(self, Self::Plain | Self::Events(_))
    }

    /// What of decode's bytes goes to the client now.
    pub(super) fn pass(&mut self, data: Bytes) -> Bytes {
        match self {
            Self::Plain => data,
            Self::Events(boundary) => {
                boundary.relayed(&data);
                data
            }
            Self::MergedEvents { merger, boundary } => {
                let events = merger.push(&data);
                boundary.relayed(&events);
                events
            }
            Self::MergedPlain { whole, .. } => {
                whole.extend_from_slice(&data);
                Bytes::new()
            }
        }
    }

    /// What is left when decode's answer has ended.
    pub(super) fn finish(&mut self) -> Bytes {
        match self {
            Self::Plain | Self::Events(_) => Bytes::new(),
            Self::MergedEvents { merger, .. } => merger.rest(),
            Self::MergedPlain { prompt, whole } => prompt.merge(&whole.split().freeze()),
        }
    }

    /// The event that ends a stream; `None` where there is no stream of events.
    pub(super) fn error_event(&self, error: &impl Display) -> Option<Bytes> {
        match self {
            Self::Events(boundary) | Self::MergedEvents { boundary, .. } => {
                let json = ApiError::broken_off(error).json();
                Some(sse::error_event(json.as_bytes(), *boundary))
            }
            Self::Plain | Self::MergedPlain { .. } => None,
        }
    }
}
