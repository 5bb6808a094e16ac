//! The events of a streamed response: it begins, its items grow one after the other, and it ends with the whole answer.

use super::answer::{ResponseAnswer, ResponseBody};
use super::items::{ContentPart, Item, Status};
use crate::http::choice::Delta;
use crate::http::error::ApiError;
use crate::http::openai::chat::ContentLogprob;
use crate::http::sse::Events;
use serde::Serialize;

pub(crate) struct ResponseEvents {
    answer: ResponseAnswer,
    sent: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ResponseEvent {
    #[serde(flatten)]
    change: Change,
    sequence_number: u64,
}

/// What an event says.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    #[serde(rename = "type")]
    name: &'static str,
    #[serde(flatten)]
    what: What,
}

/// Where a text or a call's arguments are.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ItemPlace {
    pub(crate) item_id: String,
    pub(crate) output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_index: Option<usize>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What {
    Response {
        response: Box<ResponseBody>,
    },
    Item {
        output_index: usize,
        item: Item,
    },
    Part {
        #[serde(flatten)]
        place: ItemPlace,
        part: ContentPart,
    },
    Delta {
        #[serde(flatten)]
        place: ItemPlace,
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<ContentLogprob>>,
    },
    Text {
        #[serde(flatten)]
        place: ItemPlace,
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<ContentLogprob>>,
    },
    Arguments {
        #[serde(flatten)]
        place: ItemPlace,
        name: String,
        arguments: String,
    },
}

// === impl ResponseEvents ===

impl ResponseEvents {
    pub(crate) fn new(answer: ResponseAnswer) -> Self {
        Self { answer, sent: 0 }
    }

    fn begin(&self) -> Vec<Change> {
        if self.sent > 0 {
            return Vec::new();
        }
        let begun = |name| Change::response(name, self.answer.body(Status::InProgress));
        vec![begun("response.created"), begun("response.in_progress")]
    }

    fn numbered(&mut self, changes: Vec<Change>) -> Vec<ResponseEvent> {
        let numbered = changes.into_iter().zip(self.sent..);
        let events: Vec<ResponseEvent> = numbered
            .map(|(change, sequence_number)| ResponseEvent {
                change,
                sequence_number,
            })
            .collect();
        self.sent += events.len() as u64;
        events
    }
}

impl Events for ResponseEvents {
    type Event = ResponseEvent;
    const END: Option<&'static str> = None;

    fn name(event: &ResponseEvent) -> Option<&'static str> {
        Some(event.change.name)
    }

    fn on_delta(&mut self, _part: usize, delta: Delta) -> Vec<ResponseEvent> {
        let mut changes = self.begin();
        changes.extend(self.answer.extend(delta));
        self.numbered(changes)
    }

    fn on_end(&mut self) -> Vec<ResponseEvent> {
        let body = self.answer.ended();
        let name = match body.status {
            Status::Incomplete => "response.incomplete",
            Status::InProgress | Status::Completed | Status::Failed => "response.completed",
        };
        self.numbered(vec![Change::response(name, body)])
    }

    fn on_failure(&mut self, failure: &ApiError) -> Vec<ResponseEvent> {
        let mut changes = self.begin();
        let body = self.answer.failed(failure);
        changes.push(Change::response("response.failed", body));
        self.numbered(changes)
    }
}

// === impl Change ===

impl Change {
    fn new(name: &'static str, what: What) -> Self {
        Self { name, what }
    }

    fn response(name: &'static str, response: ResponseBody) -> Self {
        let response = Box::new(response);
        Self::new(name, What::Response { response })
    }

    pub(crate) fn item_added(output_index: usize, item: Item) -> Self {
        Self::new(
            "response.output_item.added",
            What::Item { output_index, item },
        )
    }

    pub(crate) fn item_done(output_index: usize, item: Item) -> Self {
        Self::new(
            "response.output_item.done",
            What::Item { output_index, item },
        )
    }

    pub(crate) fn part_added(place: ItemPlace, part: ContentPart) -> Self {
        Self::new("response.content_part.added", What::Part { place, part })
    }

    pub(crate) fn part_done(place: ItemPlace, part: ContentPart) -> Self {
        Self::new("response.content_part.done", What::Part { place, part })
    }

    pub(crate) fn text_delta(
        place: ItemPlace,
        delta: String,
        logprobs: Vec<ContentLogprob>,
    ) -> Self {
        let what = What::Delta {
            place,
            delta,
            logprobs: Some(logprobs),
        };
        Self::new("response.output_text.delta", what)
    }

    pub(crate) fn reasoning_delta(place: ItemPlace, delta: String) -> Self {
        let what = What::Delta {
            place,
            delta,
            logprobs: None,
        };
        Self::new("response.reasoning_text.delta", what)
    }

    pub(crate) fn arguments_delta(place: ItemPlace, delta: String) -> Self {
        let what = What::Delta {
            place,
            delta,
            logprobs: None,
        };
        Self::new("response.function_call_arguments.delta", what)
    }

    /// The whole text of a part.
    pub(crate) fn text_done(place: ItemPlace, part: &ContentPart) -> Self {
        let (name, text, logprobs) = match part {
            ContentPart::ReasoningText { text } => ("response.reasoning_text.done", text, None),
            ContentPart::OutputText { text, logprobs, .. } => {
                ("response.output_text.done", text, Some(logprobs.clone()))
            }
        };
        let what = What::Text {
            place,
            text: text.clone(),
            logprobs,
        };
        Self::new(name, what)
    }

    pub(crate) fn arguments_done(place: ItemPlace, name: &str, arguments: &str) -> Self {
        let what = What::Arguments {
            place,
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        Self::new("response.function_call_arguments.done", what)
    }
}

// === impl ItemPlace ===

impl ItemPlace {
    pub(crate) fn without_content(self) -> Self {
        Self {
            content_index: None,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
