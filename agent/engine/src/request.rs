//! An engine's input and output: a request, the events of its answer, and the reasons for refusing one.

use crate::grammar::Grammar;
use crate::sample::params::{ParamsError, SamplingParams};
use pd_protocol::BootstrapRoom;
use pd_protocol::workers::BootstrapFields;
use std::sync::Arc;

/// SGLang's `GenerateReqInput`: one choice of one prompt, already tokenised.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Request id, for logs.
    pub rid: String,
    pub input_ids: Vec<u32>,
    pub sampling: SamplingParams,
    pub logprobs: LogprobOptions,
    /// What the answer must be: of this engine's [`Grammars`](crate::grammar::Grammars).
    pub grammar: Option<Grammar>,
    /// Required in prefill and decode mode, ignored otherwise.
    pub bootstrap: Option<BootstrapFields>,
    /// Index among the `n` choices of one prompt, which makes their samples differ.
    pub choice: u32,
}

/// SGLang's `return_logprob`, `logprob_start_len`, `top_logprobs_num`, `token_ids_logprob`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogprobOptions {
    pub return_logprob: bool,
    /// Report prompt tokens from this position on; `None` reports none.
    pub logprob_start_len: Option<u32>,
    /// How many of the likeliest tokens to report per position.
    pub top_logprobs_num: u32,
    /// Tokens whose log probabilities to report per position, at most
    /// [`TOKEN_IDS_LOGPROB_MAX`](crate::sample::params::TOKEN_IDS_LOGPROB_MAX).
    pub token_ids_logprob: Arc<[u32]>,
}

/// A token with the model's opinion of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: u32,
    /// `None` for the first token of a prompt, which nothing predicts.
    pub logprob: Option<f32>,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<(u32, f32)>,
    /// Of each of `token_ids_logprob`, in their order. Empty for the first token of a prompt, and on decode for the first
    /// of an answer: prefill has them.
    pub asked: Vec<f32>,
}

/// One step of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenEvent {
    /// New tokens, none for a prompt-only request. The last one may be the stop id that ended the
    /// answer.
    pub token_ids: Vec<u32>,
    /// One per new token, if requested.
    pub logprobs: Vec<TokenLogprob>,
    /// In the first event, from `logprob_start_len` on, if requested. Not on decode: prefill has
    /// them.
    pub prompt_logprobs: Vec<TokenLogprob>,
    /// Prompt tokens whose KV was found in the cache.
    pub cached_tokens: u32,
    /// Steps that have drawn tokens of the answer behind its first, if the engine speculates.
    pub spec_verify_ct: Option<u32>,
    /// Set in the last event.
    pub finish: Option<FinishReason>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Stop {
        matched: StopMatch,
    },
    Length,
    /// The request ended without its answer. If `retriable`, the same request may succeed on
    /// another worker.
    Abort {
        reason: String,
        retriable: bool,
    },
}

/// SGLang's `matched_stop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopMatch {
    /// The model's end id or one of `stop_token_ids`.
    Token(u32),
    /// One of `stop`: the answer's text ends before it.
    Text(String),
    /// One of `stop_regex`: the answer's text ends behind what it matched.
    Pattern {
        regex: String,
        /// Bytes of the last token's text behind that.
        surplus_bytes: usize,
    },
}

/// Why a request was refused; it had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    #[error(
        "the prompt has {prompt_len} tokens, more than the {limit} that this model's context of \
         {context_length} tokens allows"
    )]
    PromptExceedsContext {
        prompt_len: usize,
        limit: usize,
        context_length: usize,
    },
    #[error(
        "the prompt has {prompt_len} tokens and this worker's KV cache takes prompts of up to {capacity}; \
         shorten it or raise --max-total-tokens"
    )]
    PromptExceedsCapacity { prompt_len: usize, capacity: usize },
    #[error(
        "the prompt has {prompt_len} tokens and max_new_tokens is {max_new_tokens}, together more \
         than the model's context of {context_length} tokens; shorten one of them"
    )]
    AnswerExceedsContext {
        prompt_len: usize,
        max_new_tokens: usize,
        context_length: usize,
    },
    #[error("token {token} of the prompt is not in the vocabulary of {vocab_size} tokens")]
    TokenOutOfVocabulary { token: u32, vocab_size: u32 },
    #[error(transparent)]
    Sampling(#[from] ParamsError),
    #[error(
        "a {role} worker needs bootstrap_host, bootstrap_port and bootstrap_room; send requests \
         through the router"
    )]
    BootstrapMissing { role: &'static str },
    #[error("bootstrap_room {0} is in use by another request of this worker; draw another")]
    RoomInUse(BootstrapRoom),
    #[error("this worker is cordoned and accepts no new requests; send it elsewhere")]
    Cordoned,
    #[error("this worker's queue is full ({limit} requests wait); send it elsewhere")]
    QueueFull { limit: usize },
    #[error("the grammar was compiled by another engine; compile it by this one")]
    ForeignGrammar,
    #[error("the engine has stopped: {reason}")]
    Stopped { reason: String },
}

// === impl SubmitError ===

impl SubmitError {
    /// Another worker may take the request (HTTP 503); otherwise it is the client's fault (400).
    pub fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::Cordoned | Self::QueueFull { .. } | Self::Stopped { .. }
        )
    }

    /// The API field at fault, if any.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::Sampling(error) => Some(error.param),
            Self::EmptyPrompt
            | Self::PromptExceedsContext { .. }
            | Self::PromptExceedsCapacity { .. }
            | Self::TokenOutOfVocabulary { .. } => Some("prompt"),
            Self::AnswerExceedsContext { .. } => Some("max_tokens"),
            Self::BootstrapMissing { .. } | Self::RoomInUse(_) => Some("bootstrap_room"),
            Self::Cordoned
            | Self::QueueFull { .. }
            | Self::ForeignGrammar
            | Self::Stopped { .. } => None,
        }
    }
}
