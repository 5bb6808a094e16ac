//! The backend's handle, and the types its ops are made of.

use super::config::TchConfig;
use super::memory::{TchBuffer, int};
use super::ticket::TchTicket;
use super::weights::{TchExperts, TchMatrix};
use crate::buffer::HostBytes;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::error::ComputeError;
use parking_lot::Mutex;
use std::sync::Arc;
use tch::{Cuda, Device};

/// Handle to a device of libtorch's.
#[derive(Clone, Debug)]
pub struct TchBackend {
    pub(super) config: TchConfig,
    /// The first fault. Held while an op runs.
    pub(super) fault: Arc<Mutex<Option<ComputeError>>>,
}

/// The first GPU that libtorch can use, or else the CPU.
pub fn usual_device() -> Device {
    load_cuda();
    Device::cuda_if_available()
}

/// Nothing of ours refers to libtorch's CUDA part, so the linker leaves it out; loading it is how it
/// makes itself known. Without one, the CPU is all there is.
fn load_cuda() {
    // SAFETY: the name is a NUL-terminated literal, and a library of libtorch's may be loaded from any
    // thread at any time.
    unsafe {
        libc::dlopen(
            c"libtorch_cuda.so".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_GLOBAL,
        )
    };
}

// === impl TchBackend ===

impl TchBackend {
    /// # Errors
    /// When libtorch has no such device or the dtype is none of activations.
    pub fn start(config: TchConfig) -> Result<Self, ComputeError> {
        let refused = |message: String| ComputeError::DeviceFault {
            op: "start",
            message,
        };
        let TchConfig { device, dtype } = config;
        let count = match device {
            Device::Cpu => 1,
            Device::Cuda(_) => {
                load_cuda();
                Cuda::device_count()
            }
            Device::Mps | Device::Vulkan => 0,
        };
        let index = if let Device::Cuda(index) = device {
            index
        } else {
            0
        };
        if int(index) >= count {
            return Err(refused(format!("libtorch finds no {device:?} here")));
        }
        if !matches!(dtype, DType::F32 | DType::BF16) {
            return Err(refused(format!(
                "activations of {dtype:?}; choose F32 or BF16"
            )));
        }
        tracing::info!(?device, ?dtype, "libtorch backend started");
        Ok(Self {
            config,
            fault: Arc::default(),
        })
    }

    /// Runs an op unless an earlier one faulted. What the op refuses is the fault.
    pub(super) fn run(&self, op: &'static str, run: impl FnOnce() -> Result<(), String>) {
        let mut fault = self.fault.lock();
        if fault.is_none()
            && let Err(message) = run()
        {
            tracing::error!(op, message, "libtorch op faulted");
            *fault = Some(ComputeError::DeviceFault { op, message });
        }
    }

    /// A ticket for what `read` yields unless an op has faulted.
    pub(super) fn ticket(
        &self,
        read: impl FnOnce() -> Result<HostBytes, ComputeError>,
    ) -> TchTicket {
        let fault = self.fault.lock();
        let result = fault.clone().map_or_else(read, Err);
        TchTicket {
            result: Some(result),
        }
    }
}

impl DeviceTypes for TchBackend {
    type Buffer = TchBuffer;
    type Weight = TchMatrix;
    type Embedding = TchMatrix;
    type Experts = TchExperts;
    type Ticket = TchTicket;
}
