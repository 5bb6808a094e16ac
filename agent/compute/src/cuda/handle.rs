//! The backend's handle, and the types its ops are made of.

use super::driver::Driver;
use super::memory::{CudaBuffer, MemoryKind};
use super::shared::{CudaConfig, Shared};
use super::ticket::CudaTicket;
use super::weights::{CudaEmbedding, CudaExperts, CudaLinear};
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::error::ComputeError;
use std::sync::Arc;

/// Handle to a device's stream.
#[derive(Clone, Debug)]
pub struct CudaBackend {
    pub(super) shared: Arc<Shared>,
}

// === impl CudaBackend ===

impl CudaBackend {
    /// # Errors
    /// When the driver has no memory for what every op needs.
    ///
    /// # Panics
    /// When the dtype is neither `BF16` nor `F32`.
    pub fn start(driver: Arc<dyn Driver>, config: CudaConfig) -> Result<Self, ComputeError> {
        assert!(
            matches!(config.dtype, DType::BF16 | DType::F32),
            "the CUDA backend computes in BF16 or F32, not {:?}",
            config.dtype
        );
        let device = driver.device();
        tracing::info!(
            device = device.name,
            sms = device.num_sms,
            memory_bytes = device.memory_bytes,
            dtype = ?config.dtype,
            deterministic = config.deterministic,
            "cuda backend started"
        );
        Ok(Self {
            shared: Arc::new(Shared::new(driver, config)?),
        })
    }

    pub fn config(&self) -> CudaConfig {
        self.shared.config
    }

    pub(super) fn alloc_in(
        &self,
        place: MemoryKind,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<CudaBuffer, ComputeError> {
        // A driver that has failed finds no memory either.
        self.shared.fault.check()?;
        CudaBuffer::alloc(&self.shared.driver, place, name, dtype, len)
    }
}

impl DeviceTypes for CudaBackend {
    type Buffer = CudaBuffer;
    type Weight = CudaLinear;
    type Embedding = CudaEmbedding;
    type Experts = CudaExperts;
    type Ticket = CudaTicket;
}
