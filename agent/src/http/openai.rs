//! What OpenAI's two completion APIs share: the fields of a request, the head of an answer, its
//! ends and its usage.

mod head;
mod logprob;
mod message;
mod request;
mod usage;

pub(crate) use head::{FinishBody, Head, MetadataBody};
pub(crate) use logprob::{TokenTexts, finite, shown};
pub(crate) use request::{OpenAiRequest, UsageEvents, choices};
pub(crate) use usage::{Tally, Usage};
