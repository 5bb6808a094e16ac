//! Log probabilities that prefill computes and decode's answer lacks: of the prompt, which are put in front of decode's
//! lists, and of the tokens that a request names, at the answer's first token. Read from prefill's answer and merged as
//! text, so that every number keeps its digits. Plain answers, batches, and the events of a stream. Where an API's
//! answers hold the lists is `shape`'s to know.

mod events;
mod shape;

pub(crate) use events::EventMerger;
pub(crate) use shape::AnswerShape;

use crate::splice::{scan_object, span};
use crate::sse::{self, EventSplitter};
use bytes::{Bytes, BytesMut};
use shape::{LogprobField, OF_FIRST_TOKEN};
use std::collections::BTreeMap;
use std::ops::Range;

/// The prompt's lists by index of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromptLogprobs {
    shape: AnswerShape,
    answers: BTreeMap<u64, Lists>,
}

/// JSON lists, not empty, in the order of [`AnswerShape::lists`].
type Lists = Vec<Option<String>>;

/// What is to stand in the place of a range of bytes, in ascending order.
type Edits = Vec<(Range<usize>, String)>;

// === impl PromptLogprobs ===

impl PromptLogprobs {
    /// Reads prefill's answer: a whole one, or events. What is neither has no log probabilities.
    pub(crate) fn read(shape: AnswerShape, body: &[u8]) -> Self {
        let mut prompt = Self {
            shape,
            answers: BTreeMap::new(),
        };
        match std::str::from_utf8(body) {
            Ok(text) if text.trim_start().starts_with(['{', '[']) => prompt.add(text),
            Ok(_) => prompt.add_events(body),
            Err(_) => {}
        }
        prompt
    }

    fn add_events(&mut self, body: &[u8]) {
        let mut splitter = EventSplitter::default();
        splitter.push(body);
        while let Some(event) = splitter.next_event() {
            if let Some(data) = std::str::from_utf8(&event).ok().and_then(sse::data) {
                self.add(data);
            }
        }
    }

    fn add(&mut self, json: &str) {
        for LogprobField { index, holder } in self.shape.fields(json) {
            let mut lists = vec![None; self.shape.lists().len()];
            let scanned = scan_object(holder.get(), |key, value| {
                if let Some(idx) = self.shape.list_idx(key)
                    && inside(value.get()).is_some()
                {
                    lists[idx] = Some(value.get().to_owned());
                }
                Ok(())
            });
            if scanned.is_ok() && lists.iter().any(Option::is_some) {
                self.answers.insert(index, lists);
            }
        }
    }

    /// Merges into a whole answer.
    pub(crate) fn merge(&mut self, body: &Bytes) -> Bytes {
        let Ok(text) = std::str::from_utf8(body) else {
            return body.clone();
        };
        apply(body, self.edits(text, text))
    }

    /// The edits that merge into the answers of `json`, a part of `text`.
    fn edits(&mut self, text: &str, json: &str) -> Edits {
        let mut edits = Vec::new();
        for LogprobField { index, holder } in self.shape.fields(json) {
            let lists = if self.shape.is_sent_once() {
                self.answers.remove(&index)
            } else {
                self.answers.get(&index).cloned()
            };
            let Some(missing) = lists else { continue };
            if holder.get() == "null" {
                let members = self.members(&missing, true);
                edits.push((span(text, holder.get()), format!("{{{members}}}")));
            } else {
                self.edit_object(text, holder.get(), missing, &mut edits);
            }
        }
        edits
    }

    /// Puts the prompt's lists in front of those that `object` has, and adds the others; completes the list of the first
    /// token.
    fn edit_object(&self, text: &str, object: &str, mut missing: Lists, edits: &mut Edits) {
        let mut is_empty = true;
        let replaced = edits.len();
        let scanned = scan_object(object, |key, value| {
            is_empty = false;
            let idx = self.shape.list_idx(key);
            if let Some(list) = idx.and_then(|idx| missing[idx].take()) {
                let merged = if key == OF_FIRST_TOKEN {
                    completed(list, value.get())
                } else {
                    joined(list, value.get())
                };
                edits.push((span(text, value.get()), merged));
            }
            Ok(())
        });
        if scanned.is_err() {
            edits.truncate(replaced);
            return;
        }
        let close_at = span(text, object).end - 1;
        edits.push((close_at..close_at, self.members(&missing, is_empty)));
    }

    /// `lists` of the prompt as members of an object that has others before unless it `is_empty`.
    fn members(&self, lists: &Lists, mut is_empty: bool) -> String {
        let mut members = String::new();
        for (name, list) in self.shape.lists().iter().zip(lists) {
            let Some(list) = list.as_ref().filter(|_| *name != OF_FIRST_TOKEN) else {
                continue;
            };
            if !is_empty {
                members.push(',');
            }
            is_empty = false;
            members.push_str(&format!("\"{name}\":{list}"));
        }
        members
    }
}

/// What stands between a list's brackets; `None` for an empty list and for anything else.
fn inside(list: &str) -> Option<&str> {
    let inside = list.strip_prefix('[')?.strip_suffix(']')?.trim();
    (!inside.is_empty()).then_some(inside)
}

/// The prompt's list followed by decode's.
fn joined(mut prompt: String, decode: &str) -> String {
    if let Some(inside) = inside(decode) {
        prompt.truncate(prompt.len() - 1);
        prompt.push(',');
        prompt.push_str(inside);
        prompt.push(']');
    }
    prompt
}

/// Decode's list, with prefill's element where the first one is null.
fn completed(first: String, decode: &str) -> String {
    match inside(decode).and_then(|list| list.strip_prefix("null")) {
        Some(rest) => joined(
            first,
            &format!("[{}]", rest.trim_start().trim_start_matches(',')),
        ),
        None => decode.to_owned(),
    }
}

fn apply(body: &Bytes, edits: Edits) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    let added_len: usize = edits.iter().map(|(_, text)| text.len()).sum();
    let mut out = BytesMut::with_capacity(body.len() + added_len);
    let mut copied = 0;
    for (range, text) in edits {
        out.extend_from_slice(&body[copied..range.start]);
        out.extend_from_slice(text.as_bytes());
        copied = range.end;
    }
    out.extend_from_slice(&body[copied..]);
    out.freeze()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
