//! Fields of `/v1/chat/completions` and `/v1/completions`, OpenAI's and SGLang's additions. Fields
//! that are not listed are ignored; those whose meaning would be lost silently are refused.

use super::message::Message;
use crate::http::bootstrap::{BootstrapBody, BootstrapPort};
use crate::http::error::ApiError;
use crate::http::one_or_many::OneOrMany;
use crate::http::prompt::Prompts;
use pd_protocol::BootstrapRoom;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A request; `L` is the type of `logprobs`: a flag in chat, a count in completions.
#[derive(Debug, Deserialize)]
pub(crate) struct OpenAiRequest<L> {
    pub(crate) model: Option<String>,
    pub(crate) messages: Option<Vec<Message>>,
    pub(crate) prompt: Option<Prompts>,
    pub(crate) n: Option<u32>,
    pub(crate) best_of: Option<u32>,
    pub(crate) echo: Option<bool>,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    pub(crate) logprobs: Option<L>,
    pub(crate) top_logprobs: Option<u32>,

    pub(crate) max_tokens: Option<u32>,
    pub(crate) max_completion_tokens: Option<u32>,
    pub(crate) min_tokens: Option<u32>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<i32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) logit_bias: Option<BTreeMap<String, f32>>,
    pub(crate) seed: Option<i64>,
    pub(crate) stop: Option<OneOrMany<String>>,
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) skip_special_tokens: Option<bool>,
    pub(crate) no_stop_trim: Option<bool>,
    /// Chat: every choice also carries its `token_ids`, vLLM's addition.
    pub(crate) return_token_ids: Option<bool>,

    pub(crate) rid: Option<String>,
    pub(crate) bootstrap_host: Option<OneOrMany<String>>,
    pub(crate) bootstrap_port: Option<OneOrMany<BootstrapPort>>,
    pub(crate) bootstrap_room: Option<OneOrMany<BootstrapRoom>>,

    /// Further variables of the chat template, such as Qwen3's `enable_thinking`.
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,

    suffix: Option<String>,
    tools: Option<Vec<IgnoredAny>>,
    response_format: Option<ResponseFormat>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

// === impl OpenAiRequest ===

impl<L> OpenAiRequest<L> {
    /// # Errors
    /// 404 when `model` names another model; 400 for a field whose effect an answer without it
    /// would silently lack.
    pub(crate) fn check(&self, served: &str) -> Result<(), ApiError> {
        if let Some(asked) = self.model.as_deref().filter(|asked| *asked != served) {
            return Err(ApiError::unknown_model(asked, served));
        }
        if self.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            return Err(ApiError::unsupported(
                "tools",
                "answers are not parsed for tool calls; leave it out",
            ));
        }
        if self
            .suffix
            .as_ref()
            .is_some_and(|suffix| !suffix.is_empty())
        {
            return Err(ApiError::unsupported(
                "suffix",
                "the model continues a prompt only; leave it out",
            ));
        }
        match &self.response_format {
            Some(format) if format.kind != "text" => Err(ApiError::unsupported(
                "response_format",
                "answers are not constrained to a grammar; use type text",
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Choices per item.
    ///
    /// # Errors
    /// 400 outside 1..=128, and when `best_of` asks for more than are returned.
    pub(crate) fn choices(&self) -> Result<u32, ApiError> {
        let n = choices(self.n)?;
        match self.best_of {
            Some(best_of) if best_of != n => Err(ApiError::unsupported(
                "best_of",
                "every choice made is returned; make it equal to `n`",
            )),
            Some(_) | None => Ok(n),
        }
    }

    pub(crate) fn include_usage(&self) -> bool {
        self.stream_options
            .and_then(|options| options.include_usage)
            .unwrap_or(false)
    }

    pub(crate) fn take_bootstrap(&mut self) -> BootstrapBody {
        BootstrapBody {
            host: self.bootstrap_host.take(),
            port: self.bootstrap_port.take(),
            room: self.bootstrap_room.take(),
        }
    }
}

/// Most choices of one item; OpenAI's bound.
const CHOICES_MAX: u32 = 128;

/// `n` within its bounds; 1 if absent.
pub(crate) fn choices(n: Option<u32>) -> Result<u32, ApiError> {
    match n.unwrap_or(1) {
        n @ 1..=CHOICES_MAX => Ok(n),
        n => Err(ApiError::field(
            "n",
            format!("`n` is {n}; it must be in 1..={CHOICES_MAX}"),
        )),
    }
}
