//! Why weights do not get onto a device.

use crate::weights::WeightsError;
use pd_compute::ComputeError;

/// Why a model's weights could not be loaded onto the device.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Compute(#[from] ComputeError),
}
