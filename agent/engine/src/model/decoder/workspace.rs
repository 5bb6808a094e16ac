//! The activations of a decoder, allocated once for the largest step.

use crate::model::{ModelConfig, StepLimits, ffn, mixer};
use pd_compute::{Backend, ComputeError, DType};

/// T = largest number of tokens in a step, R = largest number of rows with logits.
#[derive(Debug)]
pub(in crate::model) struct Workspace<B: Backend> {
    /// `[T][hidden]`: the residual stream.
    pub(in crate::model) x: B::Buffer,
    /// `[T][hidden]`.
    pub(in crate::model) normed: B::Buffer,
    /// `[T][Scratch::projected]`.
    pub(in crate::model) projected: B::Buffer,
    /// `[T][Scratch::convolved]`.
    pub(in crate::model) convolved: B::Buffer,
    /// `[T][Scratch::mixed]`.
    pub(in crate::model) mixed: B::Buffer,
    /// `[T][Scratch::gated]`.
    pub(in crate::model) gated: B::Buffer,
    /// Of a model with experts.
    pub(in crate::model) experts: Option<ExpertSpace<B>>,
    /// `F32 [T][rotary_dim]` of each of the config's ropes.
    pub(in crate::model) ropes: Vec<B::Buffer>,
    /// `[R][Scratch::mixed]`.
    pub(in crate::model) wanted_mixed: B::Buffer,
    /// `[R][hidden]`: the residual stream of the wanted rows, normed at the end.
    pub(in crate::model) hidden: B::Buffer,
    /// `F32 [R][vocab]`.
    pub(in crate::model) logits: B::Buffer,
}

/// What a mixture of experts works with.
#[derive(Debug)]
pub(in crate::model) struct ExpertSpace<B: Backend> {
    /// M = rows that go through experts at a time.
    pub(in crate::model) max_rows: usize,
    /// `F32 [M][Scratch::experts]`.
    pub(in crate::model) logits: B::Buffer,
    /// `U32 [M][Scratch::choices]`.
    pub(in crate::model) chosen: B::Buffer,
    /// `F32 [M][Scratch::choices]`.
    pub(in crate::model) weights: B::Buffer,
    /// `[M · Scratch::choices][Scratch::expert_width]`.
    pub(in crate::model) gated: B::Buffer,
    /// `[M · Scratch::choices][hidden]`.
    pub(in crate::model) terms: B::Buffer,
    /// `[M][hidden]`.
    pub(in crate::model) sums: B::Buffer,
    /// Of the expert that all rows go through.
    pub(in crate::model) shared: Option<SharedSpace<B>>,
}

/// What a shared expert makes.
#[derive(Debug)]
pub(in crate::model) struct SharedSpace<B: Backend> {
    /// `[M][hidden]`.
    pub(in crate::model) values: B::Buffer,
    /// `F32 [M]`: its factor before the sigmoid.
    pub(in crate::model) gate: B::Buffer,
}

/// The most rows that go through experts at a time: with 8 of 2,048 elements for each, their terms
/// take 64 MiB.
const MAX_EXPERT_ROWS: usize = 1024;

/// Elements per row that layers need while they compute. Layers share the memory, so a model needs
/// the most that any of them does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::model) struct Scratch {
    /// Of the mixer's first linear: q, k and v, and gates.
    pub(in crate::model) projected: usize,
    /// Of q, k and v after a convolution.
    pub(in crate::model) convolved: usize,
    /// Of what the mixer makes.
    pub(in crate::model) mixed: usize,
    /// Of the feed-forward's inner rows.
    pub(in crate::model) gated: usize,
    /// Experts that a row may choose from.
    pub(in crate::model) experts: usize,
    /// Experts that a row chooses.
    pub(in crate::model) choices: usize,
    /// Of an expert's inner rows.
    pub(in crate::model) expert_width: usize,
    /// There is an expert that all rows go through.
    pub(in crate::model) shared: bool,
}

// === impl Workspace ===

impl<B: Backend> Workspace<B> {
    pub(in crate::model) fn alloc(
        backend: &B,
        config: &ModelConfig,
        limits: StepLimits,
    ) -> Result<Self, ComputeError> {
        let StepLimits {
            max_tokens,
            max_logit_rows,
        } = limits;
        let scratch = Scratch::of(config);
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
            experts: ExpertSpace::alloc(backend, scratch, config.hidden_size, max_tokens)?,
            ropes: ropes.collect::<Result<_, _>>()?,
            wanted_mixed: wanted("mixer output of wanted rows", mixed)?,
            hidden: wanted("hidden rows", config.hidden_size)?,
            logits: backend.alloc("logits", DType::F32, max_logit_rows * config.vocab_size)?,
        })
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
        let max_rows = max_tokens.min(MAX_EXPERT_ROWS);
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

// === impl Scratch ===

impl Scratch {
    fn of(config: &ModelConfig) -> Self {
        let layers = config.layers.iter();
        let scratches =
            layers.map(|layer| mixer::scratch(&layer.mixer).max(ffn::scratch(&layer.ffn)));
        scratches.fold(Self::default(), Self::max)
    }

    fn max(self, other: Self) -> Self {
        Self {
            projected: self.projected.max(other.projected),
            convolved: self.convolved.max(other.convolved),
            mixed: self.mixed.max(other.mixed),
            gated: self.gated.max(other.gated),
            experts: self.experts.max(other.experts),
            choices: self.choices.max(other.choices),
            expert_width: self.expert_width.max(other.expert_width),
            shared: self.shared | other.shared,
        }
    }
}
