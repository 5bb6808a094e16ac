//! `SamplingParams`: how a request's tokens are sampled and when it ends. Invalid values are
//! refused here, by name, before anything is queued.

use super::stop_regex::StopRegex;
use serde::{Deserialize, Serialize};

/// SGLang's `SamplingParams`. Defaults are SGLang's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// `None`: until the context or the KV capacity ends. 0: the prompt is computed, for its log
    /// probabilities, and no token is returned.
    pub max_new_tokens: Option<u32>,
    /// End ids and stop ids are not sampled before this many tokens. Stop strings still end the
    /// answer.
    pub min_new_tokens: u32,
    /// 0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    /// -1 keeps all.
    pub top_k: i32,
    pub min_p: f32,
    pub frequency_penalty: f32,
    pub presence_penalty: f32,
    pub repetition_penalty: f32,
    pub stop: Vec<String>,
    /// Not part of a record of the request: a replay ends where the answer ended.
    #[serde(skip)]
    pub stop_regex: StopRegex,
    pub stop_token_ids: Vec<u32>,
    /// Special tokens produce no text, neither in the answer nor for stop strings.
    pub skip_special_tokens: bool,
    /// Special tokens that have text in spite of it: those by which answers are taken apart.
    pub shown_special_ids: Vec<u32>,
    /// Only the model's end ids are ignored; `stop` and `stop_token_ids` still end the request.
    pub ignore_eos: bool,
    /// Added to the logits of the named tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// `None`: drawn from the engine's random seed.
    pub seed: Option<u64>,
}

/// A parameter out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{param} {problem}")]
pub struct ParamsError {
    /// The field's name in the API.
    pub param: &'static str,
    /// What was given and what is allowed.
    pub problem: String,
}

/// Largest number of stop strings, stop ids and biased tokens of a request: each is checked for
/// every token.
pub const STOPS_MAX: usize = 64;
pub const LOGIT_BIAS_MAX: usize = 1024;
/// Longest stop string in bytes; text is held back while it could be the start of one.
pub const STOP_BYTES_MAX: usize = 1024;
/// Largest number of reported tokens per position. Source: docs/sglang-protocol.md#metadata.
pub const TOP_LOGPROBS_MAX: u32 = 128;
/// Largest number of tokens whose log probabilities a request wants per position; as many as of the likeliest.
pub const TOKEN_IDS_LOGPROB_MAX: usize = TOP_LOGPROBS_MAX as usize;

// === impl SamplingParams ===

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            max_new_tokens: Some(128),
            min_new_tokens: 0,
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_penalty: 1.0,
            stop: Vec::new(),
            stop_regex: StopRegex::default(),
            stop_token_ids: Vec::new(),
            skip_special_tokens: true,
            shown_special_ids: Vec::new(),
            ignore_eos: false,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplingParams {
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    pub fn has_penalties(&self) -> bool {
        self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
            || self.repetition_penalty != 1.0
    }

    /// # Errors
    /// Names the first parameter out of range, its value and the range.
    pub fn validate(&self, vocab_size: u32) -> Result<(), ParamsError> {
        self.validate_numbers()?;
        self.validate_lengths()?;
        self.validate_stops(vocab_size)?;
        self.validate_bias(vocab_size)
    }

    fn validate_numbers(&self) -> Result<(), ParamsError> {
        in_range("temperature", self.temperature, 0.0, f32::MAX)?;
        in_range("top_p", self.top_p, f32::MIN_POSITIVE, 1.0)?;
        in_range("min_p", self.min_p, 0.0, 1.0)?;
        in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        in_range("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        in_range(
            "repetition_penalty",
            self.repetition_penalty,
            f32::MIN_POSITIVE,
            2.0,
        )?;
        check(self.top_k == -1 || self.top_k >= 1, "top_k", || {
            format!("is {}; give -1 for all tokens, or at least 1", self.top_k)
        })
    }

    fn validate_lengths(&self) -> Result<(), ParamsError> {
        let Some(max) = self.max_new_tokens else {
            return Ok(());
        };
        check(self.min_new_tokens <= max, "min_new_tokens", || {
            format!("is {}, more than max_new_tokens {max}", self.min_new_tokens)
        })
    }

    fn validate_stops(&self, vocab_size: u32) -> Result<(), ParamsError> {
        check(self.stop.len() <= STOPS_MAX, "stop", || {
            format!("has {} strings; give at most {STOPS_MAX}", self.stop.len())
        })?;
        for stop in &self.stop {
            check(!stop.is_empty(), "stop", || {
                "contains an empty string, which would end every answer immediately".to_owned()
            })?;
            check(stop.len() <= STOP_BYTES_MAX, "stop", || {
                format!(
                    "contains a string of {} bytes; give at most {STOP_BYTES_MAX}",
                    stop.len()
                )
            })?;
        }
        check(
            self.stop_token_ids.len() <= STOPS_MAX,
            "stop_token_ids",
            || {
                format!(
                    "has {} ids; give at most {STOPS_MAX}",
                    self.stop_token_ids.len()
                )
            },
        )?;
        let unknown = self.stop_token_ids.iter().find(|&&id| id >= vocab_size);
        match unknown {
            None => Ok(()),
            Some(unknown) => check(false, "stop_token_ids", || {
                format!("contains {unknown}; the vocabulary has {vocab_size} tokens")
            }),
        }
    }

    fn validate_bias(&self, vocab_size: u32) -> Result<(), ParamsError> {
        check(
            self.logit_bias.len() <= LOGIT_BIAS_MAX,
            "logit_bias",
            || {
                format!(
                    "has {} tokens; give at most {LOGIT_BIAS_MAX}",
                    self.logit_bias.len()
                )
            },
        )?;
        for &(token, bias) in &self.logit_bias {
            check(token < vocab_size, "logit_bias", || {
                format!("names token {token}; the vocabulary has {vocab_size} tokens")
            })?;
            in_range("logit_bias", bias, -100.0, 100.0)?;
        }
        Ok(())
    }
}

/// NaN is in no range.
fn in_range(param: &'static str, value: f32, min: f32, max: f32) -> Result<(), ParamsError> {
    check((min..=max).contains(&value), param, || match (min, max) {
        (f32::MIN_POSITIVE, max) => format!("is {value}; give a number above 0, at most {max}"),
        (min, f32::MAX) => format!("is {value}; give a finite number of at least {min}"),
        _ => format!("is {value}; give a number from {min} to {max}"),
    })
}

fn check(
    holds: bool,
    param: &'static str,
    problem: impl FnOnce() -> String,
) -> Result<(), ParamsError> {
    if holds {
        Ok(())
    } else {
        Err(ParamsError {
            param,
            problem: problem(),
        })
    }
}

#[cfg(test)]
mod tests;
