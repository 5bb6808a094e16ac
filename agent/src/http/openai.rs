//! OpenAI's APIs of completions, chats and responses, and what they share: request fields, answer heads, finish reasons and usage.

pub(super) mod chat;
mod chat_prompt;
pub(super) mod completions;
mod head;
mod logprob;
mod message;
mod request;
pub(super) mod responses;
mod tools;
mod usage;

pub(crate) use chat_prompt::ChatPrompt;
pub(crate) use head::{FinishBody, Head, MetadataBody};
pub(crate) use logprob::{TokenTexts, finite, shown};
pub(crate) use message::{Message, into_template_messages};
pub(crate) use request::{OpenAiRequest, check_model, check_rid, choices, parts};
pub(crate) use tools::{ToolChoice, offered};
pub(crate) use usage::{ResponseUsage, Tally, Usage, UsageEvents};
