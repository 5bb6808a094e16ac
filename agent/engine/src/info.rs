//! `EngineInfo`: properties of an engine, fixed at its start, and the checks that follow from them.

use crate::model::config::SamplingDefaults;
use crate::request::{GenerateRequest, LogprobOptions, SubmitError};
use crate::sample::params::{ParamsError, TOKEN_IDS_LOGPROB_MAX, TOP_LOGPROBS_MAX};
use pd_protocol::BootstrapRoom;
use pd_protocol::Role;

#[derive(Clone, Debug)]
pub struct EngineInfo {
    pub role: Role,
    pub model_path: String,
    pub tokenizer_path: String,
    /// Sampling defaults of chats, for the fields that a client leaves out.
    pub sampling_defaults: SamplingDefaults,
    pub served_model_name: String,
    pub weight_version: String,
    /// Family of the model, such as `llama`.
    pub model_type: String,
    /// Longest prompt plus answer, in tokens.
    pub context_length: u32,
    /// Slots of the KV pool, in tokens.
    pub max_total_tokens: u32,
    /// Those of layers that see a window, where they have fewer; 0 of other models.
    pub max_window_tokens: u32,
    pub page_size: u32,
    pub max_running_requests: u32,
    pub vocab_size: u32,
    pub eos_token_ids: Vec<u32>,
    /// `float32`, `bfloat16` or `float16`.
    pub dtype: String,
    pub kv_cache_dtype: String,
    /// Digest of all that must be equal for KV bytes to mean the same.
    pub kv_compat: String,
    /// Identifies this process; changes with every start.
    pub boot_id: String,
}

// === impl EngineInfo ===

impl EngineInfo {
    /// Longest prompt that leaves space for one token.
    pub fn max_prompt_len(&self) -> usize {
        (self.context_length as usize - 1).min(self.max_total_tokens as usize - 1)
    }

    pub(crate) fn check_lengths(&self, request: &GenerateRequest) -> Result<(), SubmitError> {
        let prompt_len = request.input_ids.len();
        let context_length = self.context_length as usize;
        let capacity = self.max_total_tokens as usize;
        if prompt_len == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if prompt_len >= context_length {
            let limit = context_length - 1;
            return Err(SubmitError::PromptExceedsContext {
                prompt_len,
                limit,
                context_length,
            });
        }
        if prompt_len >= capacity {
            return Err(SubmitError::PromptExceedsCapacity {
                prompt_len,
                capacity: capacity - 1,
            });
        }
        let max_new_tokens = request.sampling.max_new_tokens.unwrap_or(1) as usize;
        if prompt_len + max_new_tokens > context_length {
            return Err(SubmitError::AnswerExceedsContext {
                prompt_len,
                max_new_tokens,
                context_length,
            });
        }
        Ok(())
    }

    pub(crate) fn check_tokens(&self, request: &GenerateRequest) -> Result<(), SubmitError> {
        let vocab_size = self.vocab_size;
        if let Some(&token) = request.input_ids.iter().find(|&&token| token >= vocab_size) {
            return Err(SubmitError::TokenOutOfVocabulary { token, vocab_size });
        }
        self.check_logprobs(&request.logprobs)?;
        Ok(())
    }

    fn check_logprobs(&self, logprobs: &LogprobOptions) -> Result<(), ParamsError> {
        let vocab_size = self.vocab_size;
        let (top_n, ids) = (logprobs.top_logprobs_num, &logprobs.token_ids_logprob);
        let unknown = ids.iter().find(|id| **id >= vocab_size);
        let (param, problem) = if top_n > TOP_LOGPROBS_MAX.min(vocab_size) {
            let max = TOP_LOGPROBS_MAX.min(vocab_size);
            ("top_logprobs", format!("is {top_n}; give at most {max}"))
        } else if ids.len() > TOKEN_IDS_LOGPROB_MAX {
            let len = ids.len();
            let problem = format!("has {len} ids; give at most {TOKEN_IDS_LOGPROB_MAX}");
            ("token_ids_logprob", problem)
        } else if let Some(unknown) = unknown {
            let problem = format!("contains {unknown}; the vocabulary has {vocab_size} tokens");
            ("token_ids_logprob", problem)
        } else {
            return Ok(());
        };
        Err(ParamsError { param, problem })
    }

    /// The room of a request, which prefill and decode workers need and others ignore.
    pub(crate) fn room_of(
        &self,
        request: &GenerateRequest,
    ) -> Result<Option<BootstrapRoom>, SubmitError> {
        let role = match self.role {
            Role::Unified => return Ok(None),
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        };
        let bootstrap = request.bootstrap.as_ref();
        let bootstrap = bootstrap.ok_or(SubmitError::BootstrapMissing { role })?;
        Ok(Some(bootstrap.bootstrap_room))
    }
}
