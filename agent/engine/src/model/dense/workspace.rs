//! The activations of a dense decoder, allocated once for the largest step.

use crate::model::config::narrow;
use crate::model::{ModelConfig, StepLimits};
use pd_compute::{Backend, ComputeError, DType};

/// T = largest number of tokens in a step, R = largest number of rows with logits.
#[derive(Debug)]
pub(super) struct Workspace<B: Backend> {
    /// `[T][hidden]`: the residual stream.
    pub(super) x: B::Buffer,
    /// `[T][hidden]`.
    pub(super) normed: B::Buffer,
    /// `[T][(q heads + 2·kv heads)·head_dim]`.
    pub(super) qkv: B::Buffer,
    /// `[T][q heads·head_dim]`.
    pub(super) attn: B::Buffer,
    /// `[T][intermediate]`.
    pub(super) gated: B::Buffer,
    /// `F32 [T][head_dim]`.
    pub(super) rope: B::Buffer,
    /// `[R][q heads·head_dim]`.
    pub(super) wanted_attn: B::Buffer,
    /// `[R][hidden]`: the residual stream of the wanted rows, normed at the end.
    pub(super) hidden: B::Buffer,
    /// `F32 [R][vocab]`.
    pub(super) logits: B::Buffer,
    /// `head_dim^-½`.
    pub(super) attn_scale: f32,
}

// === impl Workspace ===

impl<B: Backend> Workspace<B> {
    pub(super) fn alloc(
        backend: &B,
        config: &ModelConfig,
        limits: StepLimits,
    ) -> Result<Self, ComputeError> {
        let StepLimits {
            max_tokens,
            max_logit_rows,
        } = limits;
        let dtype = backend.activation_dtype();
        let tokens = |name, width| backend.alloc(name, dtype, max_tokens * width);
        let wanted = |name, width| backend.alloc(name, dtype, max_logit_rows * width);
        Ok(Self {
            x: tokens("residual stream", config.hidden_size)?,
            normed: tokens("normed rows", config.hidden_size)?,
            qkv: tokens("q, k and v", config.qkv_width())?,
            attn: tokens("attention output", config.q_width())?,
            gated: tokens("feed-forward rows", config.intermediate_size)?,
            rope: backend.alloc("rope table", DType::F32, max_tokens * config.head_dim)?,
            wanted_attn: wanted("attention output of wanted rows", config.q_width())?,
            hidden: wanted("hidden rows", config.hidden_size)?,
            logits: backend.alloc("logits", DType::F32, max_logit_rows * config.vocab_size)?,
            attn_scale: narrow((config.head_dim as f64).powf(-0.5)),
        })
    }
}
