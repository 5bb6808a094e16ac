//! What the engine asks of a model that lies on a device.

use super::config::ModelConfig;
use super::kv_pool_spec::KvPoolSpec;
use super::step::{Step, StepLimits};
use pd_compute::Backend;
use std::fmt::Debug;

/// A network with its weights on a device.
pub trait Model<B: Backend>: Debug + Send {
    fn config(&self) -> &ModelConfig;

    /// What the KV pool must hold for this model.
    fn kv_pool_spec(&self) -> KvPoolSpec;

    fn limits(&self) -> StepLimits;

    /// Enqueues one step and returns without waiting: K and V of every row go to the batch's out
    /// slots, states to the slots that the step names, and [`Self::logits`] and [`Self::hidden`] hold the wanted rows
    /// until the next step.
    ///
    /// # Panics
    /// When the step is larger than [`Self::limits`].
    fn forward(&mut self, step: &Step<'_, B>);

    /// Enqueues what the draft layer makes of the step that [`Self::forward`] has just computed: its entry of every row,
    /// from the row's state and the token after it, goes to the batch's out slots, and [`Self::draft_states`] holds what
    /// becomes of the wanted rows. `next_tokens` is `U32 [num_tokens]`.
    ///
    /// # Panics
    /// As the two below, when the model has no draft layer.
    fn extend_drafts(&mut self, step: &Step<'_, B>, next_tokens: &B::Buffer);

    /// Enqueues the first draft of `count` chains: [`Self::logits`] are those of these rows of [`Self::draft_states`].
    /// `rows` is `U32 [count]`.
    fn first_drafts(&mut self, rows: &B::Buffer, count: usize);

    /// Enqueues the next draft of chains: a row of the step for each, with its last draft. `rows` is `U32 [num_tokens]`,
    /// the chain's row in the step of drafts before this one.
    fn more_drafts(&mut self, step: &Step<'_, B>, rows: &B::Buffer);

    /// `[2 · max_logit_rows][hidden_size]`: what the draft layer made of the wanted rows of the last step that extended
    /// it, after its norm. The second half is the caller's, for rows that were computed elsewhere.
    ///
    /// # Panics
    /// When the model has no draft layer.
    fn draft_states(&self) -> &B::Buffer;

    /// `F32 [num_logit_rows][vocab_size]` of the last step.
    fn logits(&self) -> &B::Buffer;

    /// `[num_logit_rows][hidden_size]` of the last step, after the final norm.
    fn hidden(&self) -> &B::Buffer;
}
