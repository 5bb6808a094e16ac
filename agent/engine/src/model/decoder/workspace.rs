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
    /// `[T][Scratch::mixed]`.
    pub(in crate::model) mixed: B::Buffer,
    /// `[T][Scratch::gated]`.
    pub(in crate::model) gated: B::Buffer,
    /// `F32 [T][rotary_dim]` of each of the config's ropes.
    pub(in crate::model) ropes: Vec<B::Buffer>,
    /// `[R][Scratch::mixed]`.
    pub(in crate::model) wanted_mixed: B::Buffer,
    /// `[R][hidden]`: the residual stream of the wanted rows, normed at the end.
    pub(in crate::model) hidden: B::Buffer,
    /// `F32 [R][vocab]`.
    pub(in crate::model) logits: B::Buffer,
}

/// Elements per row that layers need while they compute. Layers share the memory, so a model needs
/// the most that any of them does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::model) struct Scratch {
    /// Of the mixer's first linear: q, k and v.
    pub(in crate::model) projected: usize,
    /// Of what the mixer makes.
    pub(in crate::model) mixed: usize,
    /// Of the feed-forward's inner rows.
    pub(in crate::model) gated: usize,
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
        let Scratch {
            projected,
            mixed,
            gated,
        } = Scratch::of(config);
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
            mixed: tokens("mixer output", mixed)?,
            gated: tokens("feed-forward rows", gated)?,
            ropes: ropes.collect::<Result<_, _>>()?,
            wanted_mixed: wanted("mixer output of wanted rows", mixed)?,
            hidden: wanted("hidden rows", config.hidden_size)?,
            logits: backend.alloc("logits", DType::F32, max_logit_rows * config.vocab_size)?,
        })
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
            mixed: self.mixed.max(other.mixed),
            gated: self.gated.max(other.gated),
        }
    }
}
