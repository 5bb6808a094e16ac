//! The events of a streamed chat: per choice the role, the text, the end; then, if requested, the
//! total usage.

use super::answer::Logprobs;
use crate::http::choice::Delta;
use crate::http::openai::{FinishBody, Head, Tally, TokenTexts, Usage, UsageEvents};
use crate::http::sse::Events;
use serde::Serialize;

pub(crate) struct ChatEvents {
    head: Head,
    texts: Option<TokenTexts>,
    tally: Tally,
    usage_events: UsageEvents,
    return_token_ids: bool,
    /// Per choice: whether its role has been sent.
    begun: Vec<bool>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChatChunk {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<ChunkChoice>,
    /// With `include_usage`: null in every event but the last, unless each carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice {
    index: usize,
    delta: ChunkDelta,
    logprobs: Option<Logprobs>,
    #[serde(flatten)]
    finish: FinishBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Default, Serialize)]
struct ChunkDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

// === impl ChatEvents ===

impl ChatEvents {
    pub(crate) fn new(
        head: Head,
        choices: u32,
        texts: Option<TokenTexts>,
        tally: Tally,
        usage_events: UsageEvents,
    ) -> Self {
        Self {
            head,
            texts,
            tally,
            usage_events,
            return_token_ids: false,
            begun: vec![false; choices as usize],
        }
    }

    /// Sets whether events carry the ids of their tokens.
    pub(crate) fn with_token_ids(self, return_token_ids: bool) -> Self {
        Self {
            return_token_ids,
            ..self
        }
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> ChatChunk {
        ChatChunk {
            id: self.head.id.clone(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: self.usage_events.of(usage, &self.tally),
        }
    }

    fn begin(&mut self, index: usize) -> Option<ChatChunk> {
        let begun = std::mem::replace(&mut self.begun[index], true);
        let delta = ChunkDelta {
            role: Some("assistant"),
            content: Some(String::new()),
        };
        let choice = ChunkChoice {
            index,
            delta,
            logprobs: None,
            finish: FinishBody::default(),
            token_ids: None,
        };
        (!begun).then(|| self.chunk(vec![choice], None))
    }

    fn text(&self, index: usize, delta: &mut Delta) -> Option<ChatChunk> {
        let logprobs = self
            .texts
            .as_ref()
            .map(|texts| Logprobs::new(texts, &delta.logprobs, delta.finish.as_ref()))
            .filter(Logprobs::has_tokens);
        let content = std::mem::take(&mut delta.text);
        let token_ids = std::mem::take(&mut delta.token_ids);
        let token_ids = Some(token_ids).filter(|ids| self.return_token_ids && !ids.is_empty());
        if content.is_empty() && logprobs.is_none() && token_ids.is_none() {
            return None;
        }
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta {
                role: None,
                content: Some(content),
            },
            logprobs,
            finish: FinishBody::default(),
            token_ids,
        };
        Some(self.chunk(vec![choice], None))
    }

    fn end(&self, index: usize, delta: &Delta) -> Option<ChatChunk> {
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta::default(),
            logprobs: None,
            finish: FinishBody::from(Some(delta.finish.as_ref()?)),
            token_ids: None,
        };
        Some(self.chunk(vec![choice], None))
    }
}

impl Events for ChatEvents {
    type Event = ChatChunk;

    fn on_delta(&mut self, part: usize, mut delta: Delta) -> Vec<ChatChunk> {
        self.tally.count(part, &delta);
        let begin = self.begin(part);
        let text = self.text(part, &mut delta);
        let end = self.end(part, &delta);
        [begin, text, end].into_iter().flatten().collect()
    }

    fn on_end(&mut self) -> Vec<ChatChunk> {
        let usage = self.tally.usage();
        let last = self.usage_events.last;
        let last = last.then(|| self.chunk(Vec::new(), Some(usage)));
        last.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
