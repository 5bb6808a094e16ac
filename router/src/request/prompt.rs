//! Shapes of prompts: a text, a list of texts, token ids, a list of lists of token ids; and how
//! many answers each is to have.

use super::{RequestError, read};
use crate::splice::{SpliceError, scan_object};
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) items: u64,
    pub(super) is_batch: bool,
    pub(super) tokens: u64,
}

/// Sample counts: one for all items, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    per_item: Option<u64>,
    /// Sum over the items, where each says its own.
    listed: Option<u64>,
    pub(super) max_new_tokens: Option<u64>,
}

/// Length of a JSON array, its elements not looked at.
struct ArrayLen(u64);

// === impl Prompt ===

impl Prompt {
    fn text(raw: &RawValue) -> Self {
        Self {
            items: 1,
            is_batch: false,
            tokens: tokens_of_text(raw),
        }
    }

    /// Messages of a chat, or the input of a response: always one prompt.
    pub(super) fn messages(raw: Option<&RawValue>) -> Self {
        raw.map_or_else(Self::one, Self::text)
    }

    pub(super) fn completions(raw: Option<&RawValue>) -> Result<Self, RequestError> {
        raw.map_or_else(|| Ok(Self::one()), |raw| Self::any(raw, "prompt"))
    }

    pub(super) fn generate(
        text: Option<&RawValue>,
        input_ids: Option<&RawValue>,
    ) -> Result<Self, RequestError> {
        let given = |raw: &&RawValue| raw.get() != "null";
        if let Some(raw) = text.filter(given) {
            return Self::any(raw, "text");
        }
        input_ids
            .filter(given)
            .map_or_else(|| Ok(Self::one()), |raw| Self::any(raw, "input_ids"))
    }

    /// A prompt that is missing or of a foreign shape is the worker's to refuse.
    fn one() -> Self {
        Self {
            items: 1,
            is_batch: false,
            tokens: 0,
        }
    }

    fn any(raw: &RawValue, param: &'static str) -> Result<Self, RequestError> {
        let Some(inside) = raw.get().strip_prefix('[') else {
            return Ok(Self::text(raw));
        };
        let len = array_len(raw).map_err(|source| RequestError::Value { param, source })?;
        match inside.trim_start().bytes().next() {
            Some(b'"') => Ok(Self {
                items: len,
                is_batch: true,
                tokens: tokens_of_text(raw),
            }),
            Some(b'[') => {
                let lists: Vec<ArrayLen> = serde_json::from_str(raw.get())
                    .map_err(|source| RequestError::MixedLists { param, source })?;
                Ok(Self {
                    items: len,
                    is_batch: true,
                    tokens: lists.iter().map(|list| list.0).sum(),
                })
            }
            Some(_) | None => Ok(Self {
                items: 1,
                is_batch: false,
                tokens: len,
            }),
        }
    }
}

/// Four bytes of text are about one token.
fn tokens_of_text(raw: &RawValue) -> u64 {
    raw.get().len() as u64 / 4 + 1
}

fn array_len(raw: &RawValue) -> serde_json::Result<u64> {
    serde_json::from_str::<ArrayLen>(raw.get()).map(|len| len.0)
}

// === impl Samples ===

impl Samples {
    pub(super) fn openai(
        n: Option<&RawValue>,
        max_new_tokens: Option<&RawValue>,
    ) -> Result<Self, RequestError> {
        Ok(Self {
            per_item: count(n, "n")?,
            listed: None,
            max_new_tokens: max_new_tokens.and_then(|raw| serde_json::from_str(raw.get()).ok()),
        })
    }

    /// `sampling_params` of `/generate`: one object, or one for each item.
    pub(super) fn generate(raw: Option<&RawValue>) -> Result<Self, RequestError> {
        let Some(raw) = raw else {
            return Ok(Self::default());
        };
        match raw.get().as_bytes().first() {
            Some(b'{') => Self::of_object(raw),
            Some(b'[') => {
                let list: Option<Vec<&RawValue>> =
                    read(Some(raw), "sampling_params", "must be a list of objects")?;
                let mut listed = 0u64;
                let mut max_new_tokens = None;
                for item in list.into_iter().flatten() {
                    let item = Self::of_object(item)?;
                    listed = listed.saturating_add(item.per_item.unwrap_or(1));
                    max_new_tokens = max_new_tokens.max(item.max_new_tokens);
                }
                Ok(Self {
                    per_item: None,
                    listed: Some(listed),
                    max_new_tokens,
                })
            }
            Some(_) | None => Ok(Self::default()),
        }
    }

    fn of_object(raw: &RawValue) -> Result<Self, RequestError> {
        let mut n = None;
        let mut max_new_tokens = None;
        scan_object(raw.get(), |key, value| {
            let (param, field) = match key {
                "n" => ("sampling_params.n", &mut n),
                "max_new_tokens" => ("sampling_params.max_new_tokens", &mut max_new_tokens),
                _ => return Ok(()),
            };
            match field.replace(value) {
                None => Ok(()),
                Some(_) => Err(param),
            }
        })
        .map_err(|error| match error {
            SpliceError::Json(source) => RequestError::Value {
                param: "sampling_params",
                source,
            },
            SpliceError::Duplicate(param) => RequestError::Duplicate { param },
        })?;
        Ok(Self {
            per_item: count(n, "sampling_params.n")?,
            listed: None,
            max_new_tokens: max_new_tokens
                .and_then(|raw: &RawValue| serde_json::from_str(raw.get()).ok()),
        })
    }

    /// Answers to a request of `items` prompts.
    pub(super) fn answers(&self, items: u64) -> u64 {
        self.listed
            .unwrap_or_else(|| items.saturating_mul(self.per_item.unwrap_or(1)))
    }
}

fn count(raw: Option<&RawValue>, param: &'static str) -> Result<Option<u64>, RequestError> {
    const RULE: &str = "must be a whole number of at least 1";
    match read::<u64>(raw, param, RULE)? {
        Some(0) => Err(RequestError::Field {
            param,
            problem: format!("{RULE}, not 0"),
        }),
        count => Ok(count),
    }
}

// === impl ArrayLen ===

impl<'de> Deserialize<'de> for ArrayLen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = ArrayLen;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ArrayLen, A::Error> {
                let mut len = 0;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    len += 1;
                }
                Ok(ArrayLen(len))
            }
        }
        deserializer.deserialize_seq(Count)
    }
}
