//! What OpenAI's two completion APIs share: request fields, answer heads, finish reasons and usage.

mod head;
mod logprob;
mod message;
mod request;
mod usage;

pub(crate) use head::{FinishBody, Head, MetadataBody};
pub(crate) use logprob::{TokenTexts, finite, shown};
pub(crate) use request::{OpenAiRequest, UsageEvents, choices};
pub(crate) use usage::{Tally, Usage};
