//! The events of a streamed completion: per choice the text and the end; then, if asked for, the
//! usage of all.

use super::answer::Answered;
use super::logprobs::Logprobs;
use crate::http::choice::Delta;
use crate::http::openai::{FinishBody, Usage, shown};
use crate::http::sse::Events;
use serde::Serialize;

pub(crate) struct CompletionEvents {
    answered: Answered,
    include_usage: bool,
    /// Of every part: where the next token begins, in characters.
    offsets: Vec<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CompletionChunk {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<ChunkChoice>,
    /// With `include_usage`: null in every event but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice {
    index: usize,
    text: String,
    logprobs: Option<Logprobs>,
    #[serde(flatten)]
    finish: FinishBody,
}

// === impl CompletionEvents ===

impl CompletionEvents {
    pub(crate) fn new(answered: Answered, parts: usize, include_usage: bool) -> Self {
        Self {
            answered,
            include_usage,
            offsets: vec![0; parts],
        }
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> CompletionChunk {
        let head = &self.answered.head;
        CompletionChunk {
            id: head.id.clone(),
            object: "text_completion",
            created: head.created,
            model: head.model.clone(),
            choices,
            usage: self.include_usage.then_some(usage),
        }
    }

    /// The prompt's text, once, before the first of the answer.
    fn take_echo(&mut self, part: usize) -> String {
        let echoes = self.answered.echoes.as_mut();
        echoes
            .map(|echoes| std::mem::take(&mut echoes[part]))
            .unwrap_or_default()
    }

    fn logprobs(&mut self, part: usize, echo: &str, delta: &Delta) -> Option<Logprobs> {
        let texts = self.answered.texts.as_ref()?;
        let mut logprobs = Logprobs::default();
        logprobs.extend(texts, &delta.prompt_logprobs, 0);
        let answer_at = self.offsets[part] + echo.chars().count();
        let tokens = shown(&delta.logprobs, delta.finish.as_ref());
        self.offsets[part] = logprobs.extend(texts, tokens, answer_at);
        (!logprobs.is_empty()).then_some(logprobs)
    }
}

impl Events for CompletionEvents {
    type Event = CompletionChunk;

    fn on_delta(&mut self, part: usize, delta: Delta) -> Vec<CompletionChunk> {
        self.answered.tally.count(part, &delta);
        let echo = self.take_echo(part);
        let logprobs = self.logprobs(part, &echo, &delta);
        let text = format!("{echo}{}", delta.text);
        if text.is_empty() && logprobs.is_none() && delta.finish.is_none() {
            return Vec::new();
        }
        let choice = ChunkChoice {
            index: part,
            text,
            logprobs,
            finish: FinishBody::from(delta.finish.as_ref()),
        };
        vec![self.chunk(vec![choice], None)]
    }

    fn on_end(&mut self) -> Vec<CompletionChunk> {
        let usage = self.answered.tally.usage();
        let last = self
            .include_usage
            .then(|| self.chunk(Vec::new(), Some(usage)));
        last.into_iter().collect()
    }
}
