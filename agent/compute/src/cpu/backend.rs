//! The CPU's [`Backend`]: every method turns its request into a command for the queue.

use super::embed::{self, CpuEmbedding};
use super::isa::Isa;
use super::memory::CpuBuffer;
use super::pack::PackedLinear;
use super::queue::{Exec, Queue};
use super::ticket::CpuTicket;
use super::{attention, gather, linear, norm, qkv, rope, sample};
use crate::buffer::{DeviceBuffer, MemoryExport};
use crate::dtype::ComputeDtype;
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::ops::{
    AttnPaged, Backend, CopyPages, Embed, GatherRows, Linear, QkvPrep, RmsNorm, RopeTable, Sample,
};
use crate::weight::WeightSource;
use bytemuck::NoUninit;
use std::sync::Arc;

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
    queue: Arc<Queue>,
    config: CpuConfig,
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
        Ok(Self { queue, config })
    }

    pub fn config(&self) -> CpuConfig {
        self.config
    }

    fn push(&self, name: &'static str, run: impl FnOnce(&Exec<'_>) + Send + 'static) {
        self.queue.push(name, run);
    }
}

impl Backend for CpuBackend {
    type Buffer = CpuBuffer;
    type Weight = Arc<PackedLinear>;
    type Embedding = CpuEmbedding;
    type Ticket = CpuTicket;

    fn activation_dtype(&self) -> DType {
        DType::F32
    }

    fn check_kv(&self, dtype: DType, head_dim: usize) -> Result<(), ComputeError> {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Ok(()),
            DType::U32 | DType::U8 => Err(ComputeError::KvUnsupported {
                backend: "CPU",
                dtype,
                head_dim,
                reason: "choose float32, float16 or bfloat16".to_owned(),
            }),
        }
    }

    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<CpuBuffer, ComputeError> {
        CpuBuffer::alloc(name, dtype, len, false)
    }

    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<CpuBuffer, ComputeError> {
        CpuBuffer::alloc(name, dtype, len, true)
    }

    fn alloc_host(&self, name: &str, dtype: DType, len: usize) -> Result<CpuBuffer, ComputeError> {
        CpuBuffer::alloc(name, dtype, len, false)
    }

    fn export(&self, buffer: &CpuBuffer) -> Result<MemoryExport, ComputeError> {
        buffer.export()
    }

    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        interleave: bool,
    ) -> Result<Arc<PackedLinear>, ComputeError> {
        let dtype = self.config.compute_dtype;
        let packed = self.queue.run_scoped("pack_linear", |exec| {
            PackedLinear::pack(parts, interleave, dtype, &|count, task| {
                exec.threads.run(count, |i, _| task(i));
            })
        })?;
        Ok(Arc::new(packed?))
    }

    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<CpuEmbedding, ComputeError> {
        CpuEmbedding::pack(table)
    }

    fn upload<T: NoUninit>(&self, dst: &CpuBuffer, src: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(src);
        assert!(
            bytes.len() <= dst.size_bytes(),
            "{} bytes exceed {dst:?}",
            bytes.len()
        );
        let (dst, bytes) = (dst.dst_bytes(), bytes.to_vec());
        self.push("upload", move |_| {
            // SAFETY: on the queue, where one command runs at a time.
            unsafe { dst.slice_mut(0..bytes.len()) }.copy_from_slice(&bytes);
        });
    }

    fn read(&self, src: &CpuBuffer) -> CpuTicket {
        self.queue.read(Some(src.clone()))
    }

    fn fence(&self) -> CpuTicket {
        self.queue.read(None)
    }

    fn health(&self) -> Result<(), ComputeError> {
        self.queue.health()
    }

    fn embed(&self, op: Embed<'_, Self>) {
        self.push("embed", embed::embed(op));
    }

    fn rms_norm(&self, op: RmsNorm<'_, Self>) {
        self.push("rms_norm", norm::rms_norm(op));
    }

    fn linear(&self, op: Linear<'_, Self>) {
        self.push("linear", linear::linear(op));
    }

    fn rope_table(&self, op: RopeTable<'_, Self>) {
        self.push("rope_table", rope::rope_table(op));
    }

    fn qkv_prep(&self, op: QkvPrep<'_, Self>) {
        self.push("qkv_prep", qkv::qkv_prep(op));
    }

    fn attn_paged(&self, op: AttnPaged<'_, Self>) {
        self.push("attn_paged", attention::attn_paged(op));
    }

    fn gather_rows(&self, op: GatherRows<'_, Self>) {
        self.push("gather_rows", gather::gather_rows(op));
    }

    fn sample(&self, op: Sample<'_, Self>) {
        self.push("sample", sample::sample(op));
    }

    fn copy_pages(&self, op: CopyPages<'_, Self>) {
        self.push("copy_pages", gather::copy_pages(op));
    }
}

#[cfg(test)]
pub(super) mod tests;
