//! Answers of one choice each, as one answer of many. What a worker wrote stays as it came, but for the choices' indices.

use crate::splice::{SpliceError, scan_object, set_members};
use crate::sse;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Whole answers in the order of their index, `samples` of each prompt: the first, with the choices of all.
///
/// # Errors
/// If one is no JSON object.
pub(super) fn merge(answers: &[Bytes], samples: usize) -> Result<String, SpliceError> {
    let mut usage = Usage::default();
    let mut choices = Vec::new();
    for (idx, answer) in answers.iter().enumerate() {
        let answer = Answer::read(&String::from_utf8_lossy(answer))?;
        usage.add(answer.usage, idx.is_multiple_of(samples));
        choices.extend(answer.choices_at(idx as u64));
    }
    let choices = format!("[{}]", choices.join(","));
    let usage = usage.json();
    let mut members = vec![("choices", choices.as_str())];
    members.extend(usage.as_deref().map(|usage| ("usage", usage)));
    let first = answers
        .first()
        .map_or("{}".into(), |first| String::from_utf8_lossy(first));
    set_members(&first, &members)
}

/// Rewrites the events of many answers into those of one.
#[derive(Debug)]
pub(super) struct EventMerger {
    samples: u32,
    /// Members of the first event, which all get.
    head: Option<Vec<(&'static str, String)>>,
    usage: Usage,
    has_failed: bool,
}

/// Members that are the same in all events of an answer.
const HEAD: [&str; 5] = ["id", "object", "created", "model", "system_fingerprint"];
const DONE: &str = "data: [DONE]\n\n";

// === impl EventMerger ===

impl EventMerger {
    pub(super) fn new(samples: u32) -> Self {
        Self {
            samples,
            head: None,
            usage: Usage::default(),
            has_failed: false,
        }
    }

    /// What of a part's event goes to the client.
    pub(super) fn pass(&mut self, idx: u32, event: &Bytes) -> Option<Bytes> {
        let data = std::str::from_utf8(event).ok().and_then(sse::data)?;
        if data.trim() == "[DONE]" {
            return None;
        }
        let Ok(answer) = Answer::read(data) else {
            return Some(event.clone());
        };
        if answer.is_error {
            self.has_failed = true;
            return Some(event.clone());
        }
        let is_of_usage = answer.choices.is_empty();
        if is_of_usage {
            self.usage
                .add(answer.usage, idx.is_multiple_of(self.samples));
        }
        let head = self.head.get_or_insert_with(|| answer.head.clone());
        if is_of_usage {
            return None;
        }
        let choices = format!("[{}]", answer.choices_at(u64::from(idx)).join(","));
        let mut members = vec![("choices", choices.as_str())];
        members.extend(head.iter().map(|(key, value)| (*key, value.as_str())));
        let json = set_members(data, &members).ok()?;
        Some(format!("data: {json}\n\n").into())
    }

    /// Whether the last event said that a part has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// What ends the answer once all parts have ended.
    pub(super) fn end(self) -> Bytes {
        let (Some(head), Some(usage)) = (self.head, self.usage.json()) else {
            return DONE.into();
        };
        let head = head
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value},"));
        let head: String = head.collect();
        format!("data: {{{head}\"choices\":[],\"usage\":{usage}}}\n\n{DONE}").into()
    }
}

/// A part's answer, or one of its events.
#[derive(Debug, Default)]
struct Answer {
    head: Vec<(&'static str, String)>,
    choices: Vec<Box<RawValue>>,
    usage: Option<Tokens>,
    is_error: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

// === impl Answer ===

impl Answer {
    fn read(json: &str) -> Result<Self, SpliceError> {
        let mut answer = Self::default();
        scan_object(json, |key, value| {
            if let Some(name) = HEAD.into_iter().find(|name| *name == key) {
                answer.head.push((name, value.get().to_owned()));
            }
            match key {
                "choices" => answer.choices = serde_json::from_str(value.get()).unwrap_or_default(),
                "usage" => answer.usage = serde_json::from_str(value.get()).unwrap_or_default(),
                "error" => answer.is_error = value.get() != "null",
                _ => {}
            }
            Ok(())
        })?;
        Ok(answer)
    }

    fn choices_at(&self, idx: u64) -> Vec<String> {
        let idx = idx.to_string();
        let choices = self.choices.iter().map(|choice| choice.get());
        choices
            .map(|choice| {
                set_members(choice, &[("index", &idx)]).unwrap_or_else(|_| choice.to_owned())
            })
            .collect()
    }
}

/// Tokens of all parts, if they say.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    is_given: bool,
    prompt_tokens: u64,
    completion_tokens: u64,
}

// === impl Usage ===

impl Usage {
    /// A prompt counts once, in the first of its answers.
    fn add(&mut self, part: Option<Tokens>, counts_prompt: bool) {
        let Some(tokens) = part else {
            return;
        };
        self.is_given = true;
        self.completion_tokens += tokens.completion_tokens;
        if counts_prompt {
            self.prompt_tokens += tokens.prompt_tokens;
        }
    }

    fn json(self) -> Option<String> {
        let (prompt, completion) = (self.prompt_tokens, self.completion_tokens);
        let total = prompt + completion;
        self.is_given.then(|| {
            format!(
                "{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion},\"total_tokens\":{total}}}"
            )
        })
    }
}
