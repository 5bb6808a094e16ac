//! The items of an answer as they grow, and the events that say so: whole answers and streams have the same.

use super::events::{Change, ItemPlace};
use crate::http::openai::chat::{ChatPart, ContentLogprob};
use serde::Serialize;

/// How far an item, or the answer, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) status: Status,
    #[serde(flatten)]
    pub(crate) body: ItemBody,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ItemBody {
    Reasoning {
        /// None is made.
        summary: [ContentPart; 0],
        content: Vec<ContentPart>,
    },
    Message {
        role: &'static str,
        content: Vec<ContentPart>,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
    },
}

/// The one part of a message or of reasoning.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentPart {
    ReasoningText {
        text: String,
    },
    OutputText {
        text: String,
        /// What hosted tools would have found.
        annotations: [(); 0],
        logprobs: Vec<ContentLogprob>,
    },
}

/// Which text an item holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
}

#[derive(Debug)]
pub(crate) struct Items {
    /// The end of their ids: that of the answer's.
    id: String,
    /// All but the last have ended.
    items: Vec<Item>,
    /// Of tokens whose text has not come yet.
    logprobs: Vec<ContentLogprob>,
}

// === impl Items ===

impl Items {
    /// For the answer `response_id`.
    pub(crate) fn new(response_id: &str) -> Self {
        let (_, id) = response_id.split_once('_').unwrap_or(("", response_id));
        Self {
            id: id.to_owned(),
            items: Vec::new(),
            logprobs: Vec::new(),
        }
    }

    pub(crate) fn all(&self) -> &[Item] {
        &self.items
    }

    /// Adds log probabilities of the answer's text, which comes with the next parts.
    pub(crate) fn add_logprobs(&mut self, logprobs: Vec<ContentLogprob>) {
        self.logprobs.extend(logprobs);
    }

    pub(crate) fn add(&mut self, part: ChatPart, changes: &mut Vec<Change>) {
        match part {
            ChatPart::Reasoning(more) => self.add_text(Kind::Reasoning, more, changes),
            ChatPart::Text(more) => self.add_text(Kind::Message, more, changes),
            ChatPart::Call { id, name, .. } => {
                // Of the marks around the call.
                self.logprobs.clear();
                self.close(Status::Completed, changes);
                let body = ItemBody::FunctionCall {
                    call_id: id,
                    name,
                    arguments: String::new(),
                };
                self.open("fc", body, changes);
            }
            ChatPart::Arguments { more, .. } => {
                let place = self.place(None);
                if let Some(Item {
                    body: ItemBody::FunctionCall { arguments, .. },
                    ..
                }) = self.items.last_mut()
                {
                    arguments.push_str(&more);
                    changes.push(Change::arguments_delta(place, more));
                }
            }
        }
    }

    /// Ends the answer, whose last item is as its `status`; one that says nothing is an empty message.
    pub(crate) fn end(&mut self, status: Status, changes: &mut Vec<Change>) {
        if self.items.is_empty() || !self.logprobs.is_empty() {
            self.add_text(Kind::Message, String::new(), changes);
        }
        self.close(status, changes);
    }

    fn add_text(&mut self, kind: Kind, more: String, changes: &mut Vec<Change>) {
        if self.open_kind() != Some(kind) {
            self.close(Status::Completed, changes);
            self.open_text(kind, changes);
        }
        let place = self.place(Some(0));
        let new_logprobs = match kind {
            Kind::Reasoning => Vec::new(),
            Kind::Message => std::mem::take(&mut self.logprobs),
        };
        match self.items.last_mut().and_then(Item::part_mut) {
            Some(ContentPart::ReasoningText { text }) => {
                text.push_str(&more);
                changes.push(Change::reasoning_delta(place, more));
            }
            Some(ContentPart::OutputText { text, logprobs, .. }) => {
                text.push_str(&more);
                logprobs.extend(new_logprobs.iter().cloned());
                if !more.is_empty() || !new_logprobs.is_empty() {
                    changes.push(Change::text_delta(place, more, new_logprobs));
                }
            }
            None => {}
        }
    }

    /// Which text the last item holds, if it goes on.
    fn open_kind(&self) -> Option<Kind> {
        let last = self.items.last()?;
        match (&last.body, last.status) {
            (ItemBody::Reasoning { .. }, Status::InProgress) => Some(Kind::Reasoning),
            (ItemBody::Message { .. }, Status::InProgress) => Some(Kind::Message),
            (
                ItemBody::Reasoning { .. }
                | ItemBody::Message { .. }
                | ItemBody::FunctionCall { .. },
                _,
            ) => None,
        }
    }

    fn open_text(&mut self, kind: Kind, changes: &mut Vec<Change>) {
        let (prefix, body, part) = match kind {
            Kind::Reasoning => ("rs", ItemBody::reasoning(), ContentPart::reasoning()),
            Kind::Message => ("msg", ItemBody::message(), ContentPart::output()),
        };
        self.open(prefix, body, changes);
        changes.push(Change::part_added(self.place(Some(0)), part.clone()));
        if let Some(content) = self.items.last_mut().and_then(Item::content_mut) {
            content.push(part);
        }
    }

    fn open(&mut self, prefix: &str, body: ItemBody, changes: &mut Vec<Change>) {
        let index = self.items.len();
        let item = Item {
            id: format!("{prefix}_{}{index}", self.id),
            status: Status::InProgress,
            body,
        };
        changes.push(Change::item_added(index, item.clone()));
        self.items.push(item);
    }

    /// Ends the last item, unless it has ended.
    fn close(&mut self, status: Status, changes: &mut Vec<Change>) {
        let place = self.place(Some(0));
        let Some(item) = self.items.last_mut() else {
            return;
        };
        if item.status != Status::InProgress {
            return;
        }
        item.status = status;
        match &item.body {
            ItemBody::FunctionCall {
                name, arguments, ..
            } => {
                let place = place.without_content();
                changes.push(Change::arguments_done(place, name, arguments));
            }
            ItemBody::Reasoning { content, .. } | ItemBody::Message { content, .. } => {
                for part in content {
                    changes.push(Change::text_done(place.clone(), part));
                    changes.push(Change::part_done(place.clone(), part.clone()));
                }
            }
        }
        let item = item.clone();
        changes.push(Change::item_done(self.items.len() - 1, item));
    }

    /// Where the last item is.
    fn place(&self, content_index: Option<usize>) -> ItemPlace {
        ItemPlace {
            item_id: self.items.last().map_or_else(String::new, |i| i.id.clone()),
            output_index: self.items.len().saturating_sub(1),
            content_index,
        }
    }
}

// === impl Item ===

impl Item {
    fn content_mut(&mut self) -> Option<&mut Vec<ContentPart>> {
        match &mut self.body {
            ItemBody::Reasoning { content, .. } | ItemBody::Message { content, .. } => {
                Some(content)
            }
            ItemBody::FunctionCall { .. } => None,
        }
    }

    fn part_mut(&mut self) -> Option<&mut ContentPart> {
        self.content_mut()?.first_mut()
    }
}

// === impl ItemBody ===

impl ItemBody {
    fn reasoning() -> Self {
        Self::Reasoning {
            summary: [],
            content: Vec::new(),
        }
    }

    fn message() -> Self {
        Self::Message {
            role: "assistant",
            content: Vec::new(),
        }
    }
}

// === impl ContentPart ===

impl ContentPart {
    fn reasoning() -> Self {
        Self::ReasoningText {
            text: String::new(),
        }
    }

    fn output() -> Self {
        Self::OutputText {
            text: String::new(),
            annotations: [],
            logprobs: Vec::new(),
        }
    }
}
