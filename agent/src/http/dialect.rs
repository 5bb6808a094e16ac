//! How each API words a refusal: it names fields, and reports an overlong prompt, in its own way.

use super::error::ApiError;
use http::StatusCode;
use pd_engine::engine::SubmitError;
use pd_engine::text::{EncodeError, TextTooLong};

/// OpenAI's code for a request that exceeds the context; client libraries check for it.
const CONTEXT_LENGTH_EXCEEDED: &str = "context_length_exceeded";

/// The names that a request's API uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// The field that holds the prompt.
    pub(crate) prompt: &'static str,
    pub(crate) max_tokens: &'static str,
    min_tokens: &'static str,
    /// Where a tool holds its function: the path's end.
    pub(crate) function: &'static str,
    is_openai: bool,
}

// === impl Dialect ===

impl Dialect {
    /// OpenAI's dialect of `/v1/responses`, whose tools are flat.
    pub(crate) const RESPONSES: Self = Self {
        prompt: "input",
        max_tokens: "max_output_tokens",
        min_tokens: "min_tokens",
        function: "",
        is_openai: true,
    };

    /// OpenAI's dialect, for a prompt in the field `prompt` and a length in the field `max_tokens`.
    pub(crate) const fn openai(prompt: &'static str, max_tokens: &'static str) -> Self {
        Self {
            prompt,
            max_tokens,
            min_tokens: "min_tokens",
            function: ".function",
            is_openai: true,
        }
    }

    /// SGLang's dialect of `/generate`.
    pub(crate) const fn generate(prompt: &'static str) -> Self {
        Self {
            prompt,
            max_tokens: "max_new_tokens",
            min_tokens: "min_new_tokens",
            function: ".function",
            is_openai: false,
        }
    }

    /// The error for a text that could not be tokenised, with a context of `context_length`.
    pub(crate) fn untokenised(self, why: &EncodeError, context_length: u32) -> ApiError {
        match why {
            EncodeError::TooLong(too_long) => self.text_too_long(*too_long, context_length),
            EncodeError::Unwritable { .. } => ApiError::field(self.prompt, why.to_string()),
            EncodeError::Cancelled => ApiError::internal(why.to_string()),
        }
    }

    fn text_too_long(self, too_long: TextTooLong, context_length: u32) -> ApiError {
        let (prompt, bytes) = (self.prompt, too_long.bytes);
        let message = if self.is_openai {
            format!(
                "This model's maximum context length is {context_length} tokens. However, the \
                 {prompt} of your request is longer: it has {bytes} bytes of text, more than so \
                 many tokens can hold. Please reduce the length of the {prompt}."
            )
        } else {
            format!(
                "the prompt has {bytes} bytes, more than this model's context of {context_length} \
                 tokens can hold"
            )
        };
        ApiError::field(prompt, message).with_code(CONTEXT_LENGTH_EXCEEDED)
    }

    /// The error for a request for `max_new_tokens` tokens that the engine refused.
    pub(crate) fn refusal(self, why: &SubmitError, max_new_tokens: u32) -> ApiError {
        if why.is_retriable() {
            return ApiError::retriable(why.to_string());
        }
        let message = self.message(why, max_new_tokens);
        let refusal = match why.param() {
            Some(param) => ApiError::field(self.field(param), message),
            None => ApiError::new(StatusCode::BAD_REQUEST, message),
        };
        match why {
            SubmitError::PromptExceedsContext { .. }
            | SubmitError::PromptExceedsCapacity { .. }
            | SubmitError::AnswerExceedsContext { .. } => {
                refusal.with_code(CONTEXT_LENGTH_EXCEEDED)
            }
            SubmitError::EmptyPrompt
            | SubmitError::TokenOutOfVocabulary { .. }
            | SubmitError::Sampling(_)
            | SubmitError::BootstrapMissing { .. }
            | SubmitError::RoomInUse(_)
            | SubmitError::Cordoned
            | SubmitError::QueueFull { .. }
            | SubmitError::ForeignGrammar
            | SubmitError::Stopped { .. } => refusal,
        }
    }

    fn message(self, why: &SubmitError, max_new_tokens: u32) -> String {
        if let SubmitError::Sampling(wrong) = why {
            let problem = wrong.problem.replace("max_new_tokens", self.max_tokens);
            return format!("{} {problem}", self.field(wrong.param));
        }
        let (SubmitError::PromptExceedsContext {
            prompt_len,
            context_length,
            ..
        }
        | SubmitError::AnswerExceedsContext {
            prompt_len,
            context_length,
            ..
        }) = why
        else {
            return why.to_string();
        };
        if !self.is_openai {
            return why.to_string();
        }
        let (prompt, answer_len) = (self.prompt, max_new_tokens as usize);
        let requested = prompt_len + answer_len;
        format!(
            "This model's maximum context length is {context_length} tokens. However, you \
             requested {requested} tokens ({prompt_len} in the {prompt}, {answer_len} in the \
             completion). Please reduce the length of the {prompt} or completion."
        )
    }

    /// The client's name of a field, given the engine's, which is SGLang's.
    fn field(self, engine_name: &'static str) -> &'static str {
        match engine_name {
            "prompt" => self.prompt,
            "max_tokens" | "max_new_tokens" => self.max_tokens,
            "min_new_tokens" => self.min_tokens,
            "top_logprobs" => match self.prompt {
                "messages" | "input" => "top_logprobs",
                _ if self.is_openai => "logprobs",
                _ => "top_logprobs_num",
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
