//! How the libtorch backend is set up.

use crate::dtype::DType;
use tch::Device;

/// How the libtorch backend runs.
#[derive(Clone, Copy, Debug)]
pub struct TchConfig {
    /// A CPU or a GPU.
    pub device: Device,
    /// Of activations and weights, `F32` or `BF16`.
    pub dtype: DType,
}
