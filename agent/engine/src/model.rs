//! Models: families of networks written once against `pd_compute::Backend`.
//!
//! A model owns its packed weights and its activations; the KV pool, the batch and the choice of
//! rows with logits are the caller's. It knows neither requests nor the scheduler.

pub mod config;
mod dense;
pub mod files;
mod llama;
mod qwen3;
mod rope;

use crate::weights::WeightsError;
use dense::{DenseDecoder, DenseFamily};
use pd_compute::{Backend, BatchView, ComputeError, KvGroupView};
use std::fmt::Debug;
use std::ops::Range;

pub use config::{Family, ModelConfig, RopeScaling};
pub use files::{ModelFiles, ModelPath, OpenError};

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
    /// `U32 [num_logit_rows]`: rows of the step whose logits are wanted, usually the last of each
    /// sequence.
    pub logit_rows: &'a B::Buffer,
    pub num_logit_rows: usize,
}

/// A network with its weights on a device.
pub trait Model<B: Backend>: Debug + Send {
    fn config(&self) -> &ModelConfig;

    /// What the KV pool must hold for this model.
    fn kv_pool_spec(&self) -> KvPoolSpec;

    fn limits(&self) -> StepLimits;

    /// Enqueues one step and returns without waiting: K and V of every row go to the batch's out
    /// slots, and [`Self::logits`] and [`Self::hidden`] hold the wanted rows until the next step.
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
    let family: &DenseFamily = match files.config.family {
        Family::Llama => &llama::LLAMA,
        Family::Qwen3 => &qwen3::QWEN3,
    };
    Ok(Box::new(DenseDecoder::load(
        backend, files, family, limits,
    )?))
}

/// The KV groups of a model: layers that share a page table, dtype, heads and head dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPoolSpec {
    pub groups: Vec<KvGroupSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroupSpec {
    /// For messages and descriptors; `"full"` for full attention.
    pub name: &'static str,
    /// Layers of the model in this group.
    pub layers: Range<usize>,
    pub num_kv_heads: usize,
    pub head_dim: usize,
}

// === impl KvPoolSpec ===

impl KvPoolSpec {
    /// Every layer in one group of full attention.
    pub fn full_attention(config: &ModelConfig) -> Self {
        Self {
            groups: vec![KvGroupSpec {
                name: "full",
                layers: 0..config.num_layers,
                num_kv_heads: config.num_kv_heads,
                head_dim: config.head_dim,
            }],
        }
    }
}

// === impl KvGroupSpec ===

impl KvGroupSpec {
    /// Elements that one token's K and V take in this group.
    pub fn elements_per_token(&self) -> usize {
        self.layers.len() * self.num_kv_heads * 2 * self.head_dim
    }
}

#[cfg(test)]
mod tests;
