//! The backend's handle: what ops are enqueued through, and the types they are made of.

use super::embedding::CpuEmbedding;
use super::experts::CpuExperts;
use super::isa::Isa;
use super::memory::CpuBuffer;
use super::pack::{PackTarget, PackedLinear};
use super::queue::Queue;
use super::ticket::CpuTicket;
use crate::device_types::DeviceTypes;
use crate::dtype::ComputeDtype;
use crate::error::ComputeError;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How the CPU backend runs.
#[derive(Clone, Copy, Debug)]
pub struct CpuConfig {
    /// Threads that compute, the queue's own among them (`--cpu-threads`).
    pub threads: usize,
    pub isa: Isa,
    pub compute_dtype: ComputeDtype,
}

/// Handle to a queue thread and its pool. The threads end with the last handle.
#[derive(Clone, Debug)]
pub struct CpuBackend {
    pub(super) queue: Arc<Queue>,
    pub(super) config: CpuConfig,
    /// Keys and values that were written at the end of their dtype's range.
    pub(super) saturated: Arc<AtomicU64>,
}

// === impl CpuConfig ===

impl Default for CpuConfig {
    /// All cores, the strongest instruction set, f32.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            isa: Isa::detect(),
            compute_dtype: ComputeDtype::F32,
        }
    }
}

// === impl CpuBackend ===

impl CpuBackend {
    /// # Errors
    /// When the processor lacks the instruction set or a thread cannot be started.
    pub fn start(config: CpuConfig) -> Result<Self, ComputeError> {
        let isa = config.isa.require()?;
        let queue = Arc::new(Queue::start(config.threads.max(1), isa)?);
        tracing::info!(
            threads = config.threads,
            isa = isa.name(),
            "cpu backend started"
        );
        Ok(Self {
            queue,
            config,
            saturated: Arc::default(),
        })
    }

    pub fn config(&self) -> CpuConfig {
        self.config
    }

    pub(super) fn pack_target(&self) -> PackTarget {
        PackTarget {
            dtype: self.config.compute_dtype,
            isa: self.config.isa,
        }
    }
}

impl DeviceTypes for CpuBackend {
    type Buffer = CpuBuffer;
    type Weight = Arc<PackedLinear>;
    type Embedding = CpuEmbedding;
    type Experts = CpuExperts;
    type Ticket = CpuTicket;
}
