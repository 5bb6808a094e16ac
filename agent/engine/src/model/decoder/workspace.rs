//! The activations of a decoder, allocated once for the largest step.

use super::scratch::Scratch;
use crate::model::config::ModelConfig;
use crate::model::step::StepLimits;
use pd_compute::{Backend, ComputeError, DType};

/// T = largest number of tokens in a step, R = largest number of rows with logits.
#[derive(Debug)]
pub(crate) struct Workspace<B: Backend> {
    /// `[T][hidden]`: the residual stream.
    pub(crate) x: B::Buffer,
    /// `[T][hidden]`.
    pub(crate) normed: B::Buffer,
    /// `[T][Scratch::projected]`.
    pub(crate) projected: B::Buffer,
    /// `[T][Scratch::convolved]`.
    pub(crate) convolved: B::Buffer,
    /// `[T][Scratch::mixed]`.
    pub(crate) mixed: B::Buffer,
    /// `[T][Scratch::gated]`.
    pub(crate) gated: B::Buffer,
    /// Of a model with latent attention.
    pub(crate) latents: Option<LatentSpace<B>>,
    /// Of a model with experts.
    pub(crate) experts: Option<ExpertSpace<B>>,
    /// `F32 [T][rotary_dim]` of each of the config's ropes.
    pub(crate) ropes: Vec<B::Buffer>,
    /// `[R][Scratch::mixed]`.
    pub(crate) wanted_mixed: B::Buffer,
    /// `[R][hidden]`: the residual stream of the wanted rows, normed at the end.
    pub(crate) hidden: B::Buffer,
    /// `F32 [R][vocab]`.
    pub(crate) logits: B::Buffer,
}

/// What latent attention works with.
#[derive(Debug)]
pub(crate) struct LatentSpace<B: Backend> {
    /// `[T][Scratch::latent]`.
    pub(crate) latent: B::Buffer,
    /// `[T][Scratch::absorbed]`.
    pub(crate) absorbed: B::Buffer,
    /// `[T][Scratch::attended]`, and queries before their second product.
    pub(crate) attended: B::Buffer,
}

/// What a mixture of experts works with.
#[derive(Debug)]
pub(crate) struct ExpertSpace<B: Backend> {
    /// M = rows that go through experts at a time.
    pub(crate) max_rows: usize,
    /// `F32 [M][Scratch::experts]`.
    pub(crate) logits: B::Buffer,
    /// `U32 [M][Scratch::choices]`.
    pub(crate) chosen: B::Buffer,
    /// `F32 [M][Scratch::choices]`.
    pub(crate) weights: B::Buffer,
    /// `[M · Scratch::choices][Scratch::expert_width]`.
    pub(crate) gated: B::Buffer,
    /// `[M · Scratch::choices][hidden]`.
    pub(crate) terms: B::Buffer,
    /// `[M][hidden]`.
    pub(crate) sums: B::Buffer,
    /// Of the expert that all rows go through.
    pub(crate) shared: Option<SharedSpace<B>>,
}

/// What a shared expert makes.
#[derive(Debug)]
pub(crate) struct SharedSpace<B: Backend> {
    /// `[M][hidden]`.
    pub(crate) values: B::Buffer,
    /// `F32 [M]`: its factor before the sigmoid.
    pub(crate) gate: B::Buffer,
}

// === impl Workspace ===

impl<B: Backend> Workspace<B> {
    pub(crate) fn alloc(
        backend: &B,
        config: &ModelConfig,
        limits: StepLimits,
        scratch: Scratch,
    ) -> Result<Self, ComputeError> {
        let StepLimits {
            max_tokens,
            max_logit_rows,
        } = limits;
        let Scratch {
            projected,
            convolved,
            mixed,
            gated,
            ..
        } = scratch;
        let dtype = backend.activation_dtype();
        let tokens = |name, width| backend.alloc(name, dtype, max_tokens * width);
        let wanted = |name, width| backend.alloc(name, dtype, max_logit_rows * width);
        let ropes = config
            .ropes
            .iter()
            .map(|rope| backend.alloc("rope table", DType::F32, max_tokens * rope.rotary_dim));
        Ok(Self {
            x: tokens("residual stream", config.hidden_size)?,
            normed: tokens("normed rows", config.hidden_size)?,
            projected: tokens("mixer input", projected)?,
            convolved: tokens("convolved rows", convolved)?,
            mixed: tokens("mixer output", mixed)?,
            gated: tokens("feed-forward rows", gated)?,
            latents: LatentSpace::alloc(backend, scratch, max_tokens)?,
            experts: ExpertSpace::alloc(backend, scratch, config.hidden_size, max_tokens)?,
            ropes: ropes.collect::<Result<_, _>>()?,
            wanted_mixed: wanted("mixer output of wanted rows", mixed)?,
            hidden: wanted("hidden rows", config.hidden_size)?,
            logits: backend.alloc("logits", DType::F32, max_logit_rows * config.vocab_size)?,
        })
    }
}

// === impl LatentSpace ===

impl<B: Backend> LatentSpace<B> {
    /// `None` for a model without latents.
    fn alloc(
        backend: &B,
        scratch: Scratch,
        max_tokens: usize,
    ) -> Result<Option<Self>, ComputeError> {
        if scratch.latent == 0 {
            return Ok(None);
        }
        let dtype = backend.activation_dtype();
        let tokens = |name, width| backend.alloc(name, dtype, max_tokens * width);
        Ok(Some(Self {
            latent: tokens("latents", scratch.latent)?,
            absorbed: tokens("queries of latents", scratch.absorbed)?,
            attended: tokens("attended latents", scratch.attended)?,
        }))
    }
}

// === impl ExpertSpace ===

impl<B: Backend> ExpertSpace<B> {
    /// `None` for a model without experts.
    fn alloc(
        backend: &B,
        scratch: Scratch,
        hidden: usize,
        max_tokens: usize,
    ) -> Result<Option<Self>, ComputeError> {
        let Scratch {
            experts,
            choices,
            expert_width,
            shared,
            ..
        } = scratch;
        if experts == 0 {
            return Ok(None);
        }
        let max_rows = max_tokens.min(backend.expert_rows_max());
        let dtype = backend.activation_dtype();
        let rows = |name, dtype, width| backend.alloc(name, dtype, max_rows * width);
        let shared = if shared {
            Some(SharedSpace {
                values: rows("results of the shared expert", dtype, hidden)?,
                gate: rows("factors of the shared expert", DType::F32, 1)?,
            })
        } else {
            None
        };
        Ok(Some(Self {
            max_rows,
            logits: rows("router logits", DType::F32, experts)?,
            chosen: rows("chosen experts", DType::U32, choices)?,
            weights: rows("weights of experts", DType::F32, choices)?,
            gated: rows("rows of experts", dtype, choices * expert_width)?,
            terms: rows("results of experts", dtype, choices * hidden)?,
            sums: rows("sums of experts", dtype, hidden)?,
            shared,
        }))
    }
}
