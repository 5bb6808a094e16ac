//! Log probabilities of the prompt, which prefill computes and decode's answer lacks: read from
//! prefill's answer to `/generate`, and put in front of decode's lists, as text, so that every
//! number keeps its digits. Plain answers, batches, and each event of a stream.

use crate::splice::{Object, span};
use crate::sse::{self, EventSplitter};
use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;

/// Lists of `meta_info` that are about the prompt.
const LISTS: [&str; 3] = [
    "input_token_logprobs",
    "input_top_logprobs",
    "input_token_ids_logprobs",
];

/// The prompt's lists by index of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptLogprobs {
    answers: BTreeMap<u64, Lists>,
}

/// JSON lists, not empty, in the order of `LISTS`.
type Lists = [Option<String>; 3];

/// Merges into a stream of events.
#[derive(Debug)]
pub struct EventMerger {
    prompt: PromptLogprobs,
    splitter: EventSplitter,
}

/// One answer object as far as it matters here.
#[derive(Default)]
struct Answer<'a> {
    index: u64,
    meta_info: Option<&'a RawValue>,
}

// === impl PromptLogprobs ===

impl PromptLogprobs {
    /// Reads prefill's answer: an object, a list of them, or events. What is none of these has no
    /// log probabilities.
    pub fn read(body: &[u8]) -> Self {
        let mut prompt = Self::default();
        let Ok(text) = std::str::from_utf8(body) else {
            return prompt;
        };
        match text.trim_start().as_bytes().first() {
            Some(b'{') => prompt.add(text, 0),
            Some(b'[') => {
                let answers: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                for (index, answer) in (0..).zip(answers) {
                    prompt.add(answer.get(), index);
                }
            }
            Some(_) | None => prompt.add_events(body),
        }
        prompt
    }

    fn add_events(&mut self, body: &[u8]) {
        let mut splitter = EventSplitter::default();
        splitter.push(body);
        while let Some(event) = splitter.next_event() {
            if let Some(data) = std::str::from_utf8(&event).ok().and_then(sse::data) {
                self.add(data, 0);
            }
        }
    }

    fn add(&mut self, json: &str, index: u64) {
        let Some(answer) = Answer::scan(json, index) else {
            return;
        };
        let Some(meta_info) = answer.meta_info else {
            return;
        };
        let mut lists = Lists::default();
        let scanned = Object::scan(meta_info.get(), |key, value| {
            if let Some(idx) = list_idx(key)
                && inside(value.get()).is_some()
            {
                lists[idx] = Some(value.get().to_owned());
            }
            Ok(())
        });
        if scanned.is_ok() && lists.iter().any(Option::is_some) {
            self.answers.insert(answer.index, lists);
        }
    }

    /// Merges into a whole answer, an object or a list of them.
    pub fn merge(&self, body: &Bytes) -> Bytes {
        let Ok(text) = std::str::from_utf8(body) else {
            return body.clone();
        };
        let mut edits = Vec::new();
        if text.trim_start().starts_with('[') {
            let answers: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            for (index, answer) in (0..).zip(answers) {
                self.edit(text, answer.get(), index, &mut edits);
            }
        } else {
            self.edit(text, text, 0, &mut edits);
        }
        apply(body, edits)
    }

    /// Appends the edits that merge into `answer`, a part of `text`.
    fn edit(&self, text: &str, answer: &str, index: u64, edits: &mut Vec<(Range<usize>, String)>) {
        let Some(scanned) = Answer::scan(answer, index) else {
            return;
        };
        let (Some(meta_info), Some(lists)) = (scanned.meta_info, self.answers.get(&scanned.index))
        else {
            return;
        };
        let mut missing = lists.clone();
        let mut is_empty = true;
        let replaced = edits.len();
        let scanned = Object::scan(meta_info.get(), |key, value| {
            is_empty = false;
            if let Some(prompt) = list_idx(key).and_then(|idx| missing[idx].take()) {
                edits.push((span(text, value.get()), joined(prompt, value.get())));
            }
            Ok(())
        });
        if scanned.is_err() {
            edits.truncate(replaced);
            return;
        }
        let mut added = String::new();
        for (name, prompt) in LISTS.iter().zip(missing) {
            let Some(prompt) = prompt else { continue };
            if !is_empty {
                added.push(',');
            }
            is_empty = false;
            added.push_str(&format!("\"{name}\":{prompt}"));
        }
        let close_at = span(text, meta_info.get()).end - 1;
        edits.push((close_at..close_at, added));
    }
}

fn list_idx(key: &str) -> Option<usize> {
    LISTS.iter().position(|list| *list == key)
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

fn apply(body: &Bytes, edits: Vec<(Range<usize>, String)>) -> Bytes {
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

// === impl Answer ===

impl<'a> Answer<'a> {
    /// `None` for what is no JSON object.
    fn scan(json: &'a str, index: u64) -> Option<Self> {
        let mut answer = Self {
            index,
            meta_info: None,
        };
        Object::scan(json, |key, value| {
            match key {
                "meta_info" if value.get().starts_with('{') => answer.meta_info = Some(value),
                "index" => answer.index = value.get().parse().unwrap_or(index),
                _ => {}
            }
            Ok(())
        })
        .ok()?;
        Some(answer)
    }
}

// === impl EventMerger ===

impl EventMerger {
    pub fn new(prompt: PromptLogprobs) -> Self {
        Self {
            prompt,
            splitter: EventSplitter::default(),
        }
    }

    /// Takes bytes of the stream and gives the events that are whole now, merged.
    pub fn push(&mut self, data: &[u8]) -> Bytes {
        self.splitter.push(data);
        let mut out = BytesMut::new();
        while let Some(event) = self.splitter.next_event() {
            out.extend_from_slice(&self.merge_event(&event));
        }
        out.freeze()
    }

    /// What is left when the stream ends.
    pub fn rest(&mut self) -> Bytes {
        self.splitter.rest()
    }

    fn merge_event(&self, event: &Bytes) -> Bytes {
        let Ok(text) = std::str::from_utf8(event) else {
            return event.clone();
        };
        let mut edits = Vec::new();
        if let Some(data) = sse::data(text) {
            self.prompt.edit(text, data, 0, &mut edits);
        }
        apply(event, edits)
    }
}

#[cfg(test)]
mod tests;
