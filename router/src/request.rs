//! A client's request, and what the router reads of it: model, streaming, how many answers, how
//! long the prompt is, and where the bootstrap fields go. Everything else in the client's bytes is
//! not looked at.

mod prompt;

use crate::clock::Instant;
use crate::logprobs::AnswerShape;
use crate::splice::{SpliceError, SplicePoints, scan_object};
use bytes::Bytes;
use http::HeaderMap;
use pd_spans::RequestSpan;
use prompt::{Prompt, Samples};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::str::Utf8Error;

/// Which API a request came through; it decides where the prompt and the sample count are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    ChatCompletions,
    Completions,
    Generate,
    Responses,
}

/// A client's request, read and understood.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) api: Api,
    /// Headers for the workers; hop-by-hop ones are gone.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) routing: RoutingFields,
    pub(crate) accepted: Instant,
    pub(crate) accepted_unix_ns: u64,
    /// If requests are traced.
    pub(crate) span: Option<RequestSpan>,
}

/// Rooms of one request beyond which it is refused: a bound on what one body can make the router
/// allocate.
pub(crate) const ROOMS_MAX: u32 = 8192;
/// Output tokens counted as load at most; SGLang clips its estimates at the same number.
const OUTPUT_TOKENS_MAX: u64 = 4096;
/// Output tokens counted for a request that does not say.
const OUTPUT_TOKENS_DEFAULT: u64 = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoutingFields {
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    /// One room for each answer of each prompt, item-major.
    pub(crate) rooms: RoomCount,
    /// Exact for token ids, a quarter of the bytes for text.
    pub(crate) prompt_tokens: u64,
    /// Tokens it may produce, of all its answers.
    pub(crate) output_tokens: u64,
    /// Set if log probabilities of the prompt may be asked for, or of named tokens, which come from prefill: how answers
    /// hold them.
    pub(crate) prompt_logprobs: Option<AnswerShape>,
    pub(crate) splice_points: SplicePoints,
}

/// Bootstrap fields are scalars for one answer to one prompt, arrays for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomCount {
    One,
    Many(u32),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the body is not UTF-8: byte {} begins no character", .0.valid_up_to())]
    Utf8(#[from] Utf8Error),
    #[error("the body is not a JSON object that can be routed: {0}")]
    Json(#[source] serde_json::Error),
    #[error("{param} appears twice; give it once")]
    Duplicate { param: &'static str },
    #[error("{param} {problem}")]
    Field {
        param: &'static str,
        problem: String,
    },
    #[error("{param} {source}")]
    Value {
        param: &'static str,
        source: serde_json::Error,
    },
    #[error("{param} mixes lists and other things: {source}")]
    MixedLists {
        param: &'static str,
        source: serde_json::Error,
    },
    #[error("the request asks for {asked} answers; one request may ask for {ROOMS_MAX}")]
    TooMany { asked: u64 },
}

/// The fields that are read, of all four APIs, as they stand in the client's bytes.
#[derive(Default)]
struct RawFields<'a> {
    model: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
    n: Option<&'a RawValue>,
    prompt: Option<&'a RawValue>,
    messages: Option<&'a RawValue>,
    input: Option<&'a RawValue>,
    text: Option<&'a RawValue>,
    input_ids: Option<&'a RawValue>,
    sampling_params: Option<&'a RawValue>,
    return_logprob: Option<&'a RawValue>,
    echo: Option<&'a RawValue>,
    logprobs: Option<&'a RawValue>,
    max_tokens: Option<&'a RawValue>,
    max_completion_tokens: Option<&'a RawValue>,
    max_output_tokens: Option<&'a RawValue>,
}

// === impl Api ===

impl Api {
    pub(crate) const ALL: [Self; 4] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Generate,
        Self::Responses,
    ];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Generate => "/generate",
            Self::Responses => "/v1/responses",
        }
    }

    /// Label of metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Generate => "generate",
            Self::Responses => "responses",
        }
    }

    /// Position in `ALL`.
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

// === impl RoutingFields ===

impl RoutingFields {
    /// # Errors
    /// Says where the body is no JSON object, or which field the router cannot read.
    pub(crate) fn parse(api: Api, body: &[u8]) -> Result<Self, RequestError> {
        let text = std::str::from_utf8(body)?;
        let mut fields = RawFields::default();
        let splice_points = scan_object(text, |key, value| fields.set(key, value))?;
        let model = read(fields.model, "model", "must be a string")?;
        let stream: Option<bool> = read(fields.stream, "stream", "must be true or false")?;
        let (prompt, samples) = match api {
            Api::ChatCompletions => (Prompt::messages(fields.messages), fields.samples()?),
            Api::Responses => (
                Prompt::messages(fields.input),
                Samples::openai(None, fields.max_output_tokens)?,
            ),
            Api::Completions => (Prompt::completions(fields.prompt)?, fields.samples()?),
            Api::Generate => (
                Prompt::generate(fields.text, fields.input_ids)?,
                Samples::generate(fields.sampling_params)?,
            ),
        };
        let answers = samples.answers(prompt.items);
        let max_new_tokens = samples.max_new_tokens.unwrap_or(OUTPUT_TOKENS_DEFAULT);
        Ok(Self {
            model,
            stream: stream.unwrap_or(false),
            rooms: room_count(prompt.is_batch, answers)?,
            prompt_tokens: prompt.tokens,
            output_tokens: max_new_tokens
                .min(OUTPUT_TOKENS_MAX)
                .saturating_mul(answers),
            prompt_logprobs: fields.prompt_logprobs(api),
            splice_points,
        })
    }
}

fn room_count(is_batch: bool, answers: u64) -> Result<RoomCount, RequestError> {
    match u32::try_from(answers) {
        Ok(1) if !is_batch => Ok(RoomCount::One),
        Ok(count @ 1..=ROOMS_MAX) => Ok(RoomCount::Many(count)),
        // An empty batch is the worker's to refuse; it needs no room of its own.
        Ok(0) => Ok(RoomCount::One),
        Ok(_) | Err(_) => Err(RequestError::TooMany { asked: answers }),
    }
}

// === impl RoomCount ===

impl RoomCount {
    pub(crate) fn get(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Many(count) => count,
        }
    }
}

// === impl RawFields ===

impl<'a> RawFields<'a> {
    fn set(&mut self, key: &str, value: &'a RawValue) -> Result<(), &'static str> {
        let (param, field) = match key {
            "model" => ("model", &mut self.model),
            "stream" => ("stream", &mut self.stream),
            "n" => ("n", &mut self.n),
            "prompt" => ("prompt", &mut self.prompt),
            "messages" => ("messages", &mut self.messages),
            "input" => ("input", &mut self.input),
            "text" => ("text", &mut self.text),
            "input_ids" => ("input_ids", &mut self.input_ids),
            "sampling_params" => ("sampling_params", &mut self.sampling_params),
            "return_logprob" => ("return_logprob", &mut self.return_logprob),
            "echo" => ("echo", &mut self.echo),
            "logprobs" => ("logprobs", &mut self.logprobs),
            "max_tokens" => ("max_tokens", &mut self.max_tokens),
            "max_completion_tokens" => ("max_completion_tokens", &mut self.max_completion_tokens),
            "max_output_tokens" => ("max_output_tokens", &mut self.max_output_tokens),
            _ => return Ok(()),
        };
        match field.replace(value) {
            None => Ok(()),
            Some(_) => Err(param),
        }
    }

    /// `n` and the output bound of the OpenAI APIs.
    fn samples(&self) -> Result<Samples, RequestError> {
        let max_new_tokens = self.max_completion_tokens.or(self.max_tokens);
        Samples::openai(self.n, max_new_tokens)
    }

    /// `/generate` may ask for each item; completions return them with an echoed prompt.
    fn prompt_logprobs(&self, api: Api) -> Option<AnswerShape> {
        let is_true = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get().contains("true"));
        let is_given = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() != "null");
        match api {
            Api::Generate => is_true(self.return_logprob).then_some(AnswerShape::Generate),
            Api::Completions => {
                (is_true(self.echo) && is_given(self.logprobs)).then_some(AnswerShape::Completions)
            }
            Api::ChatCompletions | Api::Responses => None,
        }
    }
}

/// Reads an optional field; `null` is absent.
fn read<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    param: &'static str,
    problem: &str,
) -> Result<Option<T>, RequestError> {
    let Some(raw) = raw else {
        return Ok(None);
    };
    serde_json::from_str(raw.get()).map_err(|_| RequestError::Field {
        param,
        problem: format!("{problem}, not {}", excerpt(raw.get())),
    })
}

/// The first characters of a value, for a message.
fn excerpt(raw: &str) -> String {
    const CHARS_MAX: usize = 40;
    match raw.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &raw[..end]),
        None => raw.to_owned(),
    }
}

// === impl RequestError ===

impl RequestError {
    /// The field at fault, for the error object.
    pub(crate) fn param(&self) -> Option<&'static str> {
        match self {
            Self::Duplicate { param }
            | Self::Field { param, .. }
            | Self::Value { param, .. }
            | Self::MixedLists { param, .. } => Some(param),
            Self::Utf8(_) | Self::Json(_) | Self::TooMany { .. } => None,
        }
    }
}

impl From<SpliceError> for RequestError {
    fn from(error: SpliceError) -> Self {
        match error {
            SpliceError::Json(error) => Self::Json(error),
            SpliceError::Duplicate(param) => Self::Duplicate { param },
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
