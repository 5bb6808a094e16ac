//! Converts request fields to the engine's `SamplingParams`. The engine checks ranges; this file
//! applies defaults and meanings.

use super::constraint::{Constraint, Given, JsonText};
use super::error::ApiError;
use super::one_or_many::OneOrMany;
use pd_engine::sample::params::SamplingParams;
use pd_engine::sample::stop_regex::StopRegex;
use serde::Deserialize;
use std::collections::BTreeMap;

/// SGLang's default for `/generate`.
const GENERATE_MAX_NEW_TOKENS: u32 = 128;

/// How an answer is sampled and written.
#[derive(Clone, Debug)]
pub(crate) struct Sampling {
    pub(crate) params: SamplingParams,
    /// Used if `params` has no `max_new_tokens`, as far as the context allows; `None`: only the
    /// context ends the answer.
    pub(crate) default_max_new_tokens: Option<u32>,
    /// Expressions behind whose match the answer ends, to be compiled.
    pub(crate) stop_regex: Vec<String>,
    /// Whether the stop string or id that ended the answer stays in it.
    pub(crate) no_stop_trim: bool,
}

/// SGLang's `sampling_params` of `/generate`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SamplingBody {
    max_new_tokens: Option<u32>,
    min_new_tokens: Option<u32>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i32>,
    min_p: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    stop: Option<OneOrMany<String>>,
    stop_regex: Option<OneOrMany<String>>,
    stop_token_ids: Option<Vec<u32>>,
    ignore_eos: Option<bool>,
    skip_special_tokens: Option<bool>,
    no_stop_trim: Option<bool>,
    logit_bias: Option<BTreeMap<String, f32>>,
    sampling_seed: Option<i64>,
    json_schema: Option<JsonText>,
    regex: Option<String>,
    ebnf: Option<String>,
    structural_tag: Option<JsonText>,
    pub(crate) n: Option<u32>,
}

// === impl SamplingBody ===

impl SamplingBody {
    /// What the answer must be.
    ///
    /// # Errors
    /// 400 for two constraints.
    pub(crate) fn take_constraint(&mut self) -> Result<Option<Constraint>, ApiError> {
        let given = Given {
            json_schema: self.json_schema.take(),
            regex: self.regex.take(),
            ebnf: self.ebnf.take(),
            structural_tag: self.structural_tag.take(),
            ..Given::default()
        };
        given.constraint()
    }
}

// === impl Sampling ===

impl Sampling {
    /// The parameters for a prompt of `prompt_len` tokens in a context of `context_length`.
    pub(crate) fn for_prompt(&self, prompt_len: usize, context_length: u32) -> SamplingParams {
        let mut params = self.params.clone();
        let left = (context_length as usize).saturating_sub(prompt_len).max(1);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let default = self.default_max_new_tokens.unwrap_or(left).min(left);
        params.max_new_tokens = params.max_new_tokens.or(Some(default));
        params
    }
}

impl TryFrom<SamplingBody> for Sampling {
    type Error = ApiError;

    fn try_from(body: SamplingBody) -> Result<Self, ApiError> {
        let defaults = SamplingParams::default();
        let (top_p, top_k) = nucleus(body.top_p, body.top_k);
        Ok(Self {
            params: SamplingParams {
                max_new_tokens: body.max_new_tokens,
                min_new_tokens: body.min_new_tokens.unwrap_or(defaults.min_new_tokens),
                temperature: body.temperature.unwrap_or(defaults.temperature),
                top_p,
                top_k,
                min_p: body.min_p.unwrap_or(defaults.min_p),
                frequency_penalty: body.frequency_penalty.unwrap_or(defaults.frequency_penalty),
                presence_penalty: body.presence_penalty.unwrap_or(defaults.presence_penalty),
                repetition_penalty: body
                    .repetition_penalty
                    .unwrap_or(defaults.repetition_penalty),
                stop: body.stop.map(OneOrMany::into_vec).unwrap_or_default(),
                stop_regex: StopRegex::default(),
                stop_token_ids: body.stop_token_ids.unwrap_or_default(),
                ignore_eos: body.ignore_eos.unwrap_or(defaults.ignore_eos),
                logit_bias: logit_bias(body.logit_bias)?,
                seed: body.sampling_seed.map(i64::cast_unsigned),
                skip_special_tokens: body.skip_special_tokens.unwrap_or(true),
                shown_special_ids: Vec::new(),
            },
            default_max_new_tokens: Some(GENERATE_MAX_NEW_TOKENS),
            stop_regex: body.stop_regex.map(OneOrMany::into_vec).unwrap_or_default(),
            no_stop_trim: body.no_stop_trim.unwrap_or(false),
        })
    }
}

/// The engine's `top_p` and `top_k`. OpenAI's `top_p` may be 0, which leaves only the likeliest
/// token.
pub(super) fn nucleus(top_p: Option<f32>, top_k: Option<i32>) -> (f32, i32) {
    let defaults = SamplingParams::default();
    match top_p {
        Some(0.0) => (defaults.top_p, 1),
        given => (
            given.unwrap_or(defaults.top_p),
            top_k.unwrap_or(defaults.top_k),
        ),
    }
}

/// Keys are token ids, which JSON writes as strings.
pub(super) fn logit_bias(
    given: Option<BTreeMap<String, f32>>,
) -> Result<Vec<(u32, f32)>, ApiError> {
    let given = given.unwrap_or_default().into_iter();
    given
        .map(|(token, bias)| match token.parse() {
            Ok(token) => Ok((token, bias)),
            Err(_) => Err(ApiError::field(
                "logit_bias",
                format!("`{token}` in logit_bias is not a token id"),
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests;
