//! Models: families of networks written once against `pd_compute::Backend`.
//!
//! A model owns its packed weights and its activations; the KV pool, the batch and the choice of
//! rows with logits are the caller's. It knows neither requests nor the scheduler.

pub mod config;
mod decoder;
mod family;
mod ffn;
pub mod files;
mod kv_pool_spec;
mod load_error;
mod mixer;
mod needs;
mod network;
mod rope;
mod step;

use decoder::Decoder;
use pd_compute::{Backend, DType};

pub use config::{Family, ModelConfig, RopeScaling};
pub use files::{DraftLayerError, ModelFiles, ModelPath, OpenError};
pub use kv_pool_spec::{KvGroupSpec, KvPoolSpec, StateDtype, StateSpec, StateTensorSpec};
pub use load_error::LoadError;
pub use needs::needs;
pub use network::Model;
pub use step::{Step, StepLimits, StepStates};

/// Packs the weights of `files` for `backend`, and allocates activations for steps up to `limits`.
///
/// # Errors
/// Names the tensor that is missing or of a wrong shape, or the allocation that failed.
pub fn load<B: Backend>(
    backend: &B,
    files: &ModelFiles,
    kv_dtype: DType,
    limits: StepLimits,
) -> Result<Box<dyn Model<B>>, LoadError> {
    Ok(Box::new(Decoder::load(backend, files, kv_dtype, limits)?))
}

#[cfg(test)]
mod tests;
