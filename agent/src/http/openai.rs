//! OpenAI's two completion APIs, and what they share: request fields, answer heads, finish reasons and usage.

pub(super) mod chat;
pub(super) mod completions;
mod head;
mod logprob;
mod message;
mod request;
mod tools;
mod usage;

pub(crate) use head::{FinishBody, Head, MetadataBody};
pub(crate) use logprob::{TokenTexts, finite, shown};
pub(crate) use request::{OpenAiRequest, check_rid, choices, parts};
pub(crate) use usage::{Tally, Usage, UsageEvents};
