//! The events of a streamed `/generate`: as in SGLang, each holds the whole answer so far.

use super::answer::{GenerateAnswer, Meta};
use crate::http::choice::Delta;
use crate::http::sse::Events;
use crate::http::token_stream::Answer;

pub(crate) struct GenerateEvents {
    parts: Vec<(Meta, Answer)>,
    batch: bool,
}

// === impl GenerateEvents ===

impl GenerateEvents {
    pub(crate) fn new(metas: Vec<Meta>, batch: bool) -> Self {
        let parts = metas.into_iter().map(|meta| (meta, Answer::default()));
        Self {
            parts: parts.collect(),
            batch,
        }
    }
}

impl Events for GenerateEvents {
    type Event = GenerateAnswer;

    fn on_delta(&mut self, part: usize, delta: Delta) -> Vec<GenerateAnswer> {
        let (meta, answer) = &mut self.parts[part];
        answer.extend(delta);
        let mut event = GenerateAnswer::new(meta, answer);
        event.index = self.batch.then_some(part);
        vec![event]
    }

    fn on_end(&mut self) -> Vec<GenerateAnswer> {
        Vec::new()
    }
}
