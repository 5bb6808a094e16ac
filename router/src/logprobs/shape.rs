//! Where the answers of an API hold lists of log probabilities.

use crate::splice::scan_object;
use serde_json::value::RawValue;

/// The list of `/generate` whose first element decode leaves null, as SGLang's does, and prefill has.
pub(super) const OF_FIRST_TOKEN: &str = "output_token_ids_logprobs";

/// How an API reports log probabilities of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerShape {
    /// `/generate`: an answer, or a list of them, each with lists of its own for the prompt in its
    /// `meta_info`. An event holds all there is so far.
    Generate,
    /// `/v1/completions`: `choices`, each with lists in its `logprobs` that begin with the echoed
    /// prompt. An event holds what is new.
    Completions,
}

/// Where one answer holds its lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogprobField<'a> {
    pub(super) index: u64,
    /// An object; or null where a completion has no list.
    pub(super) holder: &'a RawValue,
}

// === impl AnswerShape ===

impl AnswerShape {
    /// Names of the lists that prefill has a part in.
    pub(super) fn lists(self) -> &'static [&'static str] {
        match self {
            Self::Generate => &[
                "input_token_logprobs",
                "input_top_logprobs",
                "input_token_ids_logprobs",
                OF_FIRST_TOKEN,
            ],
            Self::Completions => &["tokens", "token_logprobs", "top_logprobs", "text_offset"],
        }
    }

    pub(super) fn list_idx(self, key: &str) -> Option<usize> {
        self.lists().iter().position(|list| *list == key)
    }

    /// Of a stream, only the first event of an answer has those of the prompt.
    pub(super) fn is_sent_once(self) -> bool {
        self == Self::Completions
    }

    /// The answers in `json`, an answer's whole body or an event's data, in their order.
    pub(super) fn fields(self, json: &str) -> Vec<LogprobField<'_>> {
        let (answers, holder) = match self {
            Self::Generate if json.trim_start().starts_with('[') => (elements(json), "meta_info"),
            Self::Generate => (vec![json], "meta_info"),
            Self::Completions => (choices(json), "logprobs"),
        };
        let fields = (0..).zip(answers);
        fields
            .filter_map(|(index, answer)| field(answer, holder, index))
            .filter(|field| self.is_holder(field.holder.get()))
            .collect()
    }

    fn is_holder(self, value: &str) -> bool {
        value.starts_with('{') || (value == "null" && self == Self::Completions)
    }
}

/// The member `holder` of an answer, which may say its `index` itself.
fn field<'a>(answer: &'a str, holder: &str, index: u64) -> Option<LogprobField<'a>> {
    let (mut given, mut found) = (None, None);
    let scanned = scan_object(answer, |key, value| {
        match key {
            "index" => given = value.get().parse().ok(),
            _ if key == holder => found = Some(value),
            _ => {}
        }
        Ok(())
    });
    scanned.ok()?;
    Some(LogprobField {
        index: given.unwrap_or(index),
        holder: found?,
    })
}

fn elements(list: &str) -> Vec<&str> {
    let elements: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    elements.into_iter().map(RawValue::get).collect()
}

fn choices(json: &str) -> Vec<&str> {
    let mut choices = Vec::new();
    let scanned = scan_object(json, |key, value| {
        if key == "choices" {
            choices = elements(value.get());
        }
        Ok(())
    });
    scanned.map(|_| choices).unwrap_or_default()
}
