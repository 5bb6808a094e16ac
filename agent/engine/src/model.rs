//! Models: families of networks written once against `pd_compute::Backend`.
//!
//! A model owns its packed weights and its activations; the KV pool, the batch and the choice of
//! rows with logits are the caller's. It knows neither requests nor the scheduler.

pub mod config;
mod decoder;
pub mod family;
mod ffn;
pub mod files;
mod kv_pool_spec;
mod mixer;
mod needs;
mod rope;

use crate::weights::WeightsError;
use decoder::Decoder;
use pd_compute::{Backend, BatchView, ComputeError, KvGroupView, StateRows, StateView};
use std::fmt::Debug;

pub use config::{ModelConfig, RopeScaling};
pub use family::Family;
pub use files::{ModelFiles, ModelPath, OpenError};
pub use kv_pool_spec::{KvGroupSpec, KvPoolSpec, StateDtype, StateSpec, StateTensorSpec};
pub use needs::needs;

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
    /// One view per group of [`KvPoolSpec::groups`], in that order.
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
    /// One view per state of [`KvPoolSpec::states`], in that order.
    pub views: &'a [StateView<B>],
    pub rows: &'a StateRows<B>,
}

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

/// Why a model's weights could not be loaded onto the device.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Compute(#[from] ComputeError),
}

/// Packs the weights of `files` for `backend`, and allocates activations for steps up to `limits`.
///
/// # Errors
/// Names the tensor that is missing or of a wrong shape, or the allocation that failed.
pub fn load<B: Backend>(
    backend: &B,
    files: &ModelFiles,
    limits: StepLimits,
) -> Result<Box<dyn Model<B>>, LoadError> {
    Ok(Box::new(Decoder::load(backend, files, limits)?))
}

#[cfg(test)]
mod tests;
