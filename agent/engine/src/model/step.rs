//! One forward pass, as a model takes it.

use pd_compute::{Backend, BatchView, KvGroupView, StateRows, StateView};

/// The largest step for which a model's activations are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLimits {
    /// Rows (tokens of all sequences) per step.
    pub max_tokens: usize,
    /// Rows per step whose logits are wanted.
    pub max_logit_rows: usize,
}

/// One forward pass.
#[derive(Debug)]
pub struct Step<'a, B: Backend> {
    pub batch: &'a BatchView<B>,
    /// The same with pages of the window space, for groups that have a window. Absent where these have the pages of all
    /// others.
    pub window_batch: Option<&'a BatchView<B>>,
    /// One view per group of [`super::KvPoolSpec::groups`], in that order.
    pub kv: &'a [KvGroupView<B>],
    /// Absent in steps of models without recurrent layers.
    pub states: Option<StepStates<'a, B>>,
    /// `U32 [num_logit_rows]`: rows of the step whose logits are wanted, usually the last of each
    /// sequence.
    pub logit_rows: &'a B::Buffer,
    pub num_logit_rows: usize,
}

/// The states of a step.
#[derive(Debug)]
pub struct StepStates<'a, B: Backend> {
    /// One view per state of [`super::KvPoolSpec::states`], in that order.
    pub views: &'a [StateView<B>],
    pub rows: &'a StateRows<B>,
}

// === impl Step ===

impl<B: Backend> Step<'_, B> {
    /// The batch with the pages of a group that has a window, or has none.
    pub(super) fn batch_in(&self, is_window: bool) -> &BatchView<B> {
        let window = self.window_batch.filter(|_| is_window);
        window.unwrap_or(self.batch)
    }
}
