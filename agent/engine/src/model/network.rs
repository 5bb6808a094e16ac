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

    /// `F32 [num_logit_rows][vocab_size]` of the last step.
    fn logits(&self) -> &B::Buffer;

    /// `[num_logit_rows][hidden_size]` of the last step, after the final norm.
    fn hidden(&self) -> &B::Buffer;
}
