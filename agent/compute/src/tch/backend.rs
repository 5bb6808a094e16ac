//! The [`Backend`] itself: every method runs its op at once, one at a time.

use super::memory::{TchBuffer, int};
use super::weights::{TchMatrix, pack};
use super::{attention, pages, product, rows, sample};
use crate::buffer::{HostBytes, MemoryExport, Ticket};
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::ops::{
    AttnPaged, Backend, CopyPages, Embed, GatherRows, Linear, QkvPrep, RmsNorm, RopeTable, Sample,
};
use crate::weight::WeightSource;
use bytemuck::NoUninit;
use parking_lot::Mutex;
use std::sync::Arc;
use tch::{Cuda, Device};

/// How the libtorch backend runs.
#[derive(Clone, Copy, Debug)]
pub struct TchConfig {
    /// A CPU or a GPU.
    pub device: Device,
    /// Of activations and weights, `F32` or `BF16`.
    pub dtype: DType,
}

/// Handle to a device of libtorch's.
#[derive(Clone, Debug)]
pub struct TchBackend {
    config: TchConfig,
    /// The first fault. Held while an op runs.
    fault: Arc<Mutex<Option<ComputeError>>>,
}

/// A result that was here at once.
#[derive(Debug)]
pub struct TchTicket {
    result: Option<Result<HostBytes, ComputeError>>,
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
    fn run(&self, op: &'static str, run: impl FnOnce() -> Result<(), String>) {
        let mut fault = self.fault.lock();
        if fault.is_none()
            && let Err(message) = run()
        {
            tracing::error!(op, message, "libtorch op faulted");
            *fault = Some(ComputeError::DeviceFault { op, message });
        }
    }

    /// A ticket for what `read` yields unless an op has faulted.
    fn ticket(&self, read: impl FnOnce() -> Result<HostBytes, ComputeError>) -> TchTicket {
        let fault = self.fault.lock();
        let result = fault.clone().map_or_else(read, Err);
        TchTicket {
            result: Some(result),
        }
    }
}

impl Ticket for TchTicket {
    fn wait(self) -> Result<HostBytes, ComputeError> {
        self.result
            .expect("a ticket that is waited for was not asked before")
    }

    fn try_take(&mut self) -> Option<Result<HostBytes, ComputeError>> {
        self.result.take()
    }
}

impl Backend for TchBackend {
    type Buffer = TchBuffer;
    type Weight = TchMatrix;
    type Embedding = TchMatrix;
    type Ticket = TchTicket;

    fn activation_dtype(&self) -> DType {
        self.config.dtype
    }

    fn check_kv(&self, dtype: DType, head_dim: usize) -> Result<(), ComputeError> {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Ok(()),
            DType::U32 | DType::U8 => Err(ComputeError::KvUnsupported {
                backend: "libtorch",
                dtype,
                head_dim,
                reason: "choose float32, float16 or bfloat16".to_owned(),
            }),
        }
    }

    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<TchBuffer, ComputeError> {
        TchBuffer::alloc(self.config.device, name, dtype, len)
    }

    /// Memory like any other: see [`Self::export`].
    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<TchBuffer, ComputeError> {
        self.alloc(name, dtype, len)
    }

    fn alloc_host(&self, name: &str, dtype: DType, len: usize) -> Result<TchBuffer, ComputeError> {
        TchBuffer::alloc(Device::Cpu, name, dtype, len)
    }

    fn export(&self, buffer: &TchBuffer) -> Result<MemoryExport, ComputeError> {
        Err(ComputeError::NotExportable {
            what: format!("{buffer:?}"),
            reason: "libtorch cannot share its memory with a peer; use the cpu or cuda backend"
                .to_owned(),
        })
    }

    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        interleave: bool,
    ) -> Result<TchMatrix, ComputeError> {
        pack(self.config, parts, interleave)
    }

    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<TchMatrix, ComputeError> {
        pack(self.config, &[*table], false)
    }

    fn upload<T: NoUninit>(&self, dst: &TchBuffer, src: &[T]) {
        self.run("upload", || {
            dst.write(bytemuck::cast_slice(src));
            Ok(())
        });
    }

    fn read(&self, src: &TchBuffer) -> TchTicket {
        self.ticket(|| {
            src.to_host().map_err(|error| ComputeError::DeviceFault {
                op: "read",
                message: error.to_string(),
            })
        })
    }

    fn fence(&self) -> TchTicket {
        self.ticket(|| {
            if let Device::Cuda(index) = self.config.device {
                Cuda::synchronize(int(index));
            }
            Ok(HostBytes::default())
        })
    }

    fn health(&self) -> Result<(), ComputeError> {
        self.fault.lock().clone().map_or(Ok(()), Err)
    }

    fn embed(&self, op: Embed<'_, Self>) {
        self.run("embed", || rows::embed(op));
    }

    fn rms_norm(&self, op: RmsNorm<'_, Self>) {
        self.run("rms_norm", || rows::rms_norm(op));
    }

    fn linear(&self, op: Linear<'_, Self>) {
        self.run("linear", || product::linear(op));
    }

    fn rope_table(&self, op: RopeTable<'_, Self>) {
        self.run("rope_table", || rows::rope_table(op));
    }

    fn qkv_prep(&self, op: QkvPrep<'_, Self>) {
        self.run("qkv_prep", || attention::qkv_prep(op));
    }

    fn attn_paged(&self, op: AttnPaged<'_, Self>) {
        self.run("attn_paged", || attention::attn_paged(op));
    }

    fn gather_rows(&self, op: GatherRows<'_, Self>) {
        self.run("gather_rows", || rows::gather_rows(op));
    }

    fn sample(&self, op: Sample<'_, Self>) {
        self.run("sample", || sample::sample(op));
    }

    fn copy_pages(&self, op: CopyPages<'_, Self>) {
        self.run("copy_pages", || pages::copy_pages(op));
    }
}
