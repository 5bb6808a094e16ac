//! The events of a streamed completion: per choice the text and the end; then, if requested, the
//! total usage.

use super::answer::Answered;
use super::logprobs::{Logprobs, TextOffset};
use crate::http::choice::Delta;
use crate::http::openai::{FinishBody, MetadataBody, Usage, UsageEvents, shown};
use crate::http::sse::Events;
use serde::Serialize;

pub(crate) struct CompletionEvents {
    answered: Answered,
    usage_events: UsageEvents,
    /// Per part: where the next token begins, after the first.
    offsets: Vec<Option<TextOffset>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CompletionChunk {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<ChunkChoice>,
    /// With `include_usage`: null in every event but the last, unless each carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    /// Of the last event of a choice: whose weights answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<MetadataBody>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice {
    index: usize,
    text: String,
    logprobs: Option<Logprobs>,
    #[serde(flatten)]
    finish: FinishBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

// === impl CompletionEvents ===

impl CompletionEvents {
    pub(crate) fn new(answered: Answered, parts: usize, usage_events: UsageEvents) -> Self {
        Self {
            answered,
            usage_events,
            offsets: std::iter::repeat_with(|| None).take(parts).collect(),
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
            usage: self.usage_events.of(usage, &self.answered.tally),
            metadata: None,
        }
    }

    /// The prompt's text, once, before the answer's first.
    fn take_echo(&mut self, part: usize) -> String {
        let echoes = self.answered.echoes.as_mut();
        echoes
            .map(|echoes| std::mem::take(&mut echoes[part]))
            .unwrap_or_default()
    }

    fn logprobs(&mut self, part: usize, echo: &str, delta: &Delta) -> Option<Logprobs> {
        let texts = self.answered.texts.as_ref()?;
        let mut logprobs = Logprobs::default();
        let mut prompt_offset = TextOffset::new(texts, 0, true);
        logprobs.extend(texts, &delta.prompt_logprobs, &mut prompt_offset);
        let offset = self.offsets[part].get_or_insert_with(|| {
            let skip_special_tokens = self.answered.skip_special_tokens;
            TextOffset::new(texts, echo.chars().count(), skip_special_tokens)
        });
        let tokens = shown(&delta.logprobs, delta.finish.as_ref());
        logprobs.extend(texts, tokens, offset);
        (!logprobs.is_empty()).then_some(logprobs)
    }
}

impl Events for CompletionEvents {
    type Event = CompletionChunk;

    fn on_delta(&mut self, part: usize, mut delta: Delta) -> Vec<CompletionChunk> {
        self.answered.tally.count(part, &delta);
        let echo = self.take_echo(part);
        let logprobs = self.logprobs(part, &echo, &delta);
        let text = format!("{echo}{}", delta.text());
        let token_ids = Some(std::mem::take(&mut delta.token_ids))
            .filter(|ids| self.answered.return_token_ids && !ids.is_empty());
        let is_empty = text.is_empty() && logprobs.is_none() && token_ids.is_none();
        if is_empty && delta.finish.is_none() {
            return Vec::new();
        }
        let choice = ChunkChoice {
            index: part,
            text,
            logprobs,
            finish: FinishBody::from(delta.finish.as_ref()),
            token_ids,
        };
        let ends = delta.finish.is_some();
        vec![CompletionChunk {
            metadata: ends.then(|| self.answered.head.metadata.clone()),
            ..self.chunk(vec![choice], None)
        }]
    }

    fn on_end(&mut self) -> Vec<CompletionChunk> {
        let usage = self.answered.tally.usage();
        let last = self.usage_events.last;
        let last = last.then(|| self.chunk(Vec::new(), Some(usage)));
        last.into_iter().collect()
    }
}
