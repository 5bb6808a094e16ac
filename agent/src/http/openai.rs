//! OpenAI's APIs of completions, chats and responses, and what they share: request fields, answer heads, finish reasons and usage.

pub(super) mod chat;
pub(super) mod completions;
mod head;
mod logprob;
mod message;
mod request;
pub(super) mod responses;
mod tools;
mod usage;

pub(crate) use head::{FinishBody, Head, MetadataBody};
pub(crate) use logprob::{TokenTexts, finite, shown};
pub(crate) use request::{OpenAiRequest, check_rid, choices, parts};
pub(crate) use usage::{ResponseUsage, Tally, Usage, UsageEvents};
