//! Honoured fields of `/v1/chat/completions` and `/v1/completions`, OpenAI's and the additions of
//! SGLang and vLLM. The table of fields handles all others.

use super::message::Message;
use super::tools::ToolChoice;
use super::usage::UsageEvents;
use crate::http::body::Body;
use crate::http::bootstrap::{BootstrapBody, BootstrapPort};
use crate::http::constraint::{Constraint, Given, JsonText, ResponseFormat, StructuredOutputs};
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::http::fields::Scope;
use crate::http::one_or_many::OneOrMany;
use crate::http::prompt::Prompts;
use crate::http::sampling::{Sampling, logit_bias, nucleus};
use http::StatusCode;
use pd_engine::model::config::SamplingDefaults;
use pd_engine::sample::params::SamplingParams;
use pd_engine::sample::stop_regex::StopRegex;
use pd_engine::text::TemplateValue;
use pd_protocol::BootstrapRoom;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Matches any served model; clients of SGLang send it.
const ANY_MODEL: &str = "default";

/// A request; `L` is the type of `logprobs`: a flag in chat, a count in completions.
#[derive(Debug, Default, Deserialize)]
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
    pub(crate) stop_regex: Option<OneOrMany<String>>,
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) skip_special_tokens: Option<bool>,
    pub(crate) no_stop_trim: Option<bool>,
    /// vLLM's name for `no_stop_trim`.
    pub(crate) include_stop_str_in_output: Option<bool>,
    /// Every choice also carries its `token_ids`, vLLM's addition.
    pub(crate) return_token_ids: Option<bool>,

    /// What the answer must be, by OpenAI's field.
    pub(crate) response_format: Option<ResponseFormat>,
    /// The same by SGLang's.
    pub(crate) json_schema: Option<JsonText>,
    pub(crate) regex: Option<String>,
    pub(crate) ebnf: Option<String>,
    pub(crate) structural_tag: Option<JsonText>,
    /// The same by vLLM's.
    pub(crate) guided_json: Option<JsonText>,
    pub(crate) guided_regex: Option<String>,
    pub(crate) guided_choice: Option<Vec<String>>,
    pub(crate) guided_grammar: Option<String>,
    pub(crate) structured_outputs: Option<StructuredOutputs>,

    pub(crate) rid: Option<String>,
    pub(crate) bootstrap_host: Option<OneOrMany<String>>,
    pub(crate) bootstrap_port: Option<OneOrMany<BootstrapPort>>,
    pub(crate) bootstrap_room: Option<OneOrMany<BootstrapRoom>>,

    /// Functions that the answer may call.
    pub(crate) tools: Option<Vec<TemplateValue>>,
    pub(crate) tool_choice: Option<ToolChoice>,
    /// Whether one answer may call several; it may without it.
    pub(crate) parallel_tool_calls: Option<bool>,
    /// Whether reasoning is in a field of its own, SGLang's; it is without it.
    pub(crate) separate_reasoning: Option<bool>,
    /// Whether that field arrives as it is written, SGLang's; it does without it.
    pub(crate) stream_reasoning: Option<bool>,
    /// Whether reasoning is sent at all, vLLM's; it is without it.
    pub(crate) include_reasoning: Option<bool>,

    /// Additional variables of the chat template, such as Qwen3's `enable_thinking`.
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    /// A variable of the chat template, as in SGLang; all values but "none" also set `thinking`.
    pub(crate) reasoning_effort: Option<String>,
    /// The prompt ends inside the last message, which the answer continues.
    pub(crate) continue_final_message: Option<bool>,
    /// The prompt ends with the opening of an answer.
    pub(crate) add_generation_prompt: Option<bool>,
    /// Whether the special tokens that the model expects around a prompt are added.
    pub(crate) add_special_tokens: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    include_usage: Option<bool>,
    /// An addition of SGLang and vLLM.
    continuous_usage_stats: Option<bool>,
}

// === impl Sampling ===

impl<L> TryFrom<&mut OpenAiRequest<L>> for Sampling {
    type Error = ApiError;

    /// Takes the fields out of an OpenAI request.
    fn try_from(request: &mut OpenAiRequest<L>) -> Result<Self, ApiError> {
        let defaults = SamplingParams::default();
        let (top_p, top_k) = nucleus(request.top_p, request.top_k);
        let keeps_stop = request.no_stop_trim.or(request.include_stop_str_in_output);
        Ok(Self {
            params: SamplingParams {
                max_new_tokens: request.max_completion_tokens.or(request.max_tokens),
                min_new_tokens: request.min_tokens.unwrap_or(defaults.min_new_tokens),
                temperature: request.temperature.unwrap_or(defaults.temperature),
                top_p,
                top_k,
                min_p: request.min_p.unwrap_or(defaults.min_p),
                frequency_penalty: request
                    .frequency_penalty
                    .unwrap_or(defaults.frequency_penalty),
                presence_penalty: request
                    .presence_penalty
                    .unwrap_or(defaults.presence_penalty),
                repetition_penalty: request
                    .repetition_penalty
                    .unwrap_or(defaults.repetition_penalty),
                stop: request
                    .stop
                    .take()
                    .map(OneOrMany::into_vec)
                    .unwrap_or_default(),
                stop_regex: StopRegex::default(),
                stop_token_ids: request.stop_token_ids.take().unwrap_or_default(),
                ignore_eos: request.ignore_eos.unwrap_or(defaults.ignore_eos),
                logit_bias: logit_bias(request.logit_bias.take())?,
                seed: request.seed.map(i64::cast_unsigned),
                skip_special_tokens: request.skip_special_tokens.unwrap_or(true),
                shown_special_ids: Vec::new(),
            },
            default_max_new_tokens: None,
            stop_regex: request
                .stop_regex
                .take()
                .map(OneOrMany::into_vec)
                .unwrap_or_default(),
            no_stop_trim: keeps_stop.unwrap_or(false),
        })
    }
}

// === impl OpenAiRequest ===

impl Body for OpenAiRequest<bool> {
    const SCOPE: Scope = Scope::Chat;
}

impl Body for OpenAiRequest<u32> {
    const SCOPE: Scope = Scope::Completions;
}

impl<L> OpenAiRequest<L> {
    /// The wording of a refusal, for a prompt in the field `prompt`.
    pub(crate) fn dialect(&self, prompt: &'static str) -> Dialect {
        let max_tokens = match self.max_completion_tokens {
            Some(_) => "max_completion_tokens",
            None => "max_tokens",
        };
        Dialect::openai(prompt, max_tokens)
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

    /// Sets absent sampling fields to the model's own defaults, where it has any.
    pub(crate) fn fill_sampling(&mut self, defaults: SamplingDefaults) {
        self.temperature = self.temperature.or(defaults.temperature);
        self.top_p = self.top_p.or(defaults.top_p);
        self.top_k = self.top_k.or(defaults.top_k);
        self.min_p = self.min_p.or(defaults.min_p);
        self.repetition_penalty = self.repetition_penalty.or(defaults.repetition_penalty);
    }

    /// What the answer must be.
    ///
    /// # Errors
    /// 400 for two constraints, and for one that says nothing.
    pub(crate) fn take_constraint(&mut self) -> Result<Option<Constraint>, ApiError> {
        let given = Given {
            response_format: self.response_format.take(),
            json_schema: self.json_schema.take(),
            regex: self.regex.take(),
            ebnf: self.ebnf.take(),
            structural_tag: self.structural_tag.take(),
            guided_json: self.guided_json.take(),
            guided_regex: self.guided_regex.take(),
            guided_choice: self.guided_choice.take(),
            guided_grammar: self.guided_grammar.take(),
            structured_outputs: self.structured_outputs.take(),
        };
        given.constraint()
    }

    pub(crate) fn usage_events(&self) -> UsageEvents {
        let options = self.stream_options.unwrap_or_default();
        UsageEvents {
            last: options.include_usage.unwrap_or(false),
            each: options.continuous_usage_stats.unwrap_or(false),
        }
    }

    pub(crate) fn take_bootstrap(&mut self) -> BootstrapBody {
        BootstrapBody {
            host: self.bootstrap_host.take(),
            port: self.bootstrap_port.take(),
            room: self.bootstrap_room.take(),
        }
    }
}

/// Largest number of choices per item; OpenAI's bound.
const CHOICES_MAX: u32 = 128;

/// Answers of one request; the router gives no more rooms to one.
const PARTS_MAX: usize = 8192;
/// Longest id of a request: each of its answers has it.
const RID_BYTES_MAX: usize = 256;

/// # Errors
/// 404 when `asked`, a request's `model`, names another model.
pub(crate) fn check_model(asked: Option<&str>, served: &str) -> Result<(), ApiError> {
    match asked {
        None | Some(ANY_MODEL) => Ok(()),
        Some(asked) if asked == served => Ok(()),
        Some(asked) => Err(ApiError::unknown_model(asked, served)),
    }
}

/// Answers to `items` prompts, checked before anything is made for each.
///
/// # Errors
/// 400 beyond 8192.
pub(crate) fn parts(items: usize, choices: u32) -> Result<usize, ApiError> {
    let parts = items.saturating_mul(choices as usize);
    if parts <= PARTS_MAX {
        return Ok(parts);
    }
    let message =
        format!("the request asks for {parts} answers; one request may ask for {PARTS_MAX}");
    Err(ApiError::new(StatusCode::BAD_REQUEST, message))
}

/// # Errors
/// 400 for an id beyond 256 bytes.
pub(crate) fn check_rid(rid: &str) -> Result<(), ApiError> {
    if rid.len() <= RID_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "`rid` has {} bytes; give at most {RID_BYTES_MAX}",
        rid.len()
    );
    Err(ApiError::field("rid", message))
}

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
