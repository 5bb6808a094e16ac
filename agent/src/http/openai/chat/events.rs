//! The events of a streamed chat: per choice the role, the parts of the answer, the end; then, if
//! requested, the total usage.

use super::answer::Logprobs;
use super::reader::{ChatPart, ChoiceReader};
use crate::http::choice::Delta;
use crate::http::openai::{FinishBody, Head, MetadataBody, Tally, TokenTexts, Usage, UsageEvents};
use crate::http::sse::Events;
use serde::Serialize;

pub(crate) struct ChatEvents {
    head: Head,
    texts: Option<TokenTexts>,
    tally: Tally,
    usage_events: UsageEvents,
    return_token_ids: bool,
    choices: Vec<StreamedChoice>,
}

/// A choice that is being streamed.
#[derive(Debug)]
struct StreamedChoice {
    reader: ChoiceReader,
    /// Whether its role has been sent.
    begun: bool,
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
    /// Of the last event of a choice: whose weights answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<MetadataBody>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[ToolCallDelta; 1]>,
}

/// A call's id and name, then, in later events, its arguments.
#[derive(Debug, Serialize)]
struct ToolCallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta,
}

#[derive(Debug, Serialize)]
struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

// === impl ChatEvents ===

impl ChatEvents {
    pub(crate) fn new(
        head: Head,
        readers: Vec<ChoiceReader>,
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
            choices: readers.into_iter().map(StreamedChoice::new).collect(),
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
            metadata: None,
        }
    }

    fn begin(&mut self, index: usize) -> Option<ChatChunk> {
        let begun = std::mem::replace(&mut self.choices[index].begun, true);
        let delta = ChunkDelta {
            role: Some("assistant"),
            content: Some(String::new()),
            ..ChunkDelta::default()
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

    /// The events of what a step added; the first one carries all that belongs to its tokens.
    fn parts(&self, index: usize, delta: &mut Delta, parts: Vec<ChatPart>) -> Vec<ChatChunk> {
        let texts = self.texts.as_ref();
        let mut logprobs = texts
            .map(|texts| Logprobs::new(texts, &delta.logprobs, delta.finish.as_ref()))
            .filter(Logprobs::has_tokens);
        let token_ids = std::mem::take(&mut delta.token_ids);
        let mut token_ids = Some(token_ids).filter(|ids| self.return_token_ids && !ids.is_empty());
        let mut deltas: Vec<ChunkDelta> = parts.into_iter().map(ChunkDelta::from).collect();
        if deltas.is_empty() && (logprobs.is_some() || token_ids.is_some()) {
            deltas.push(ChatPart::Text(String::new()).into());
        }
        let choice = |delta| ChunkChoice {
            index,
            delta,
            logprobs: logprobs.take(),
            finish: FinishBody::default(),
            token_ids: token_ids.take(),
        };
        let choices: Vec<ChunkChoice> = deltas.into_iter().map(choice).collect();
        let chunk = |choice| self.chunk(vec![choice], None);
        choices.into_iter().map(chunk).collect()
    }

    fn end(&self, index: usize, delta: &Delta) -> Option<ChatChunk> {
        let finish = Some(delta.finish.as_ref()?);
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta::default(),
            logprobs: None,
            finish: self.choices[index].reader.finish_body(finish),
            token_ids: None,
        };
        Some(ChatChunk {
            metadata: Some(self.head.metadata.clone()),
            ..self.chunk(vec![choice], None)
        })
    }
}

impl Events for ChatEvents {
    type Event = ChatChunk;

    fn on_delta(&mut self, part: usize, mut delta: Delta) -> Vec<ChatChunk> {
        self.tally.count(part, &delta);
        let read = self.choices[part].reader.read(&delta);
        self.tally.count_reasoning(read.reasoning_tokens);
        let begin = self.begin(part);
        let parts = self.parts(part, &mut delta, read.parts);
        let end = self.end(part, &delta);
        begin.into_iter().chain(parts).chain(end).collect()
    }

    fn on_end(&mut self) -> Vec<ChatChunk> {
        let usage = self.tally.usage();
        let last = self.usage_events.last;
        let last = last.then(|| self.chunk(Vec::new(), Some(usage)));
        last.into_iter().collect()
    }
}

// === impl StreamedChoice ===

impl StreamedChoice {
    fn new(reader: ChoiceReader) -> Self {
        Self {
            reader,
            begun: false,
        }
    }
}

// === impl ChunkDelta ===

impl From<ChatPart> for ChunkDelta {
    fn from(part: ChatPart) -> Self {
        let mut delta = Self::default();
        match part {
            ChatPart::Reasoning(more) => delta.reasoning_content = Some(more),
            ChatPart::Text(more) => delta.content = Some(more),
            ChatPart::Call { index, id, name } => {
                delta.tool_calls = Some([ToolCallDelta {
                    index,
                    id: Some(id),
                    kind: Some("function"),
                    function: FunctionDelta {
                        name: Some(name),
                        arguments: String::new(),
                    },
                }]);
            }
            ChatPart::Arguments { index, more } => {
                delta.tool_calls = Some([ToolCallDelta {
                    index,
                    id: None,
                    kind: None,
                    function: FunctionDelta {
                        name: None,
                        arguments: more,
                    },
                }]);
            }
        }
        delta
    }
}

#[cfg(test)]
mod tests;
