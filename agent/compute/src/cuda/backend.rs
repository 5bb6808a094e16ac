//! CUDA's [`Backend`]: every method checks its request and enqueues kernels for it.

use super::driver::{Driver, DriverError, Launch, Work};
use super::export::{CudaMemory, EXPORT_GRANULE};
use super::fault::FaultWord;
use super::kernels::{Kernel, to_u32};
use super::memory::{CudaBuffer, MemoryKind};
use super::ops::{attention, copy, linear, norm, qkv, sample};
use super::pinned::{BLOCK_BYTES_MAX, PinnedPool};
use super::replay::{Recording, Steps};
use super::scratch::Scratch;
use super::stream_event::StreamEvent;
use super::ticket::{CudaTicket, Pending};
use super::weights::{self, CudaEmbedding, CudaLinear};
use crate::buffer::{DeviceBuffer, ExportHandle, MemoryExport};
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::ops::{
    AttnPaged, Backend, CopyPages, Embed, Epilogue, GatherRows, Linear, QkvPrep, RmsNorm,
    RopeTable, Sample,
};
use crate::weight::WeightSource;
use bytemuck::{NoUninit, Pod};
use std::sync::Arc;

/// How the CUDA backend runs.
#[derive(Clone, Copy, Debug)]
pub struct CudaConfig {
    /// Of weights, activations and the KV pool: `BF16`, or `F32` for the faithful path.
    pub dtype: DType,
    /// A row's bits depend on neither batch-mates nor chunking.
    pub deterministic: bool,
}

/// Handle to a device's stream.
#[derive(Clone, Debug)]
pub struct CudaBackend {
    shared: Arc<Shared>,
}

/// What the handles and tickets of a backend share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: CudaConfig,
    pub(super) fault: FaultWord,
    pub(super) pinned: Arc<PinnedPool>,
    /// Gate and up before they are joined.
    pub(super) gate_up: Scratch,
    /// Of attention over several splits.
    pub(super) partials: Scratch,
    pub(super) arrivals: Scratch,
    /// Of sampling: lists and partial results.
    pub(super) sampling: Scratch,
    recording: Recording,
    steps: Steps,
    pub(super) driver: Arc<dyn Driver>,
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
            shared: Arc::new(Shared {
                config,
                fault: FaultWord::new(&driver)?,
                pinned: PinnedPool::new(&driver),
                gate_up: Scratch::new("gate and up of a product"),
                partials: Scratch::new("attention's partial sums"),
                arrivals: Scratch::new("attention's arrivals"),
                sampling: Scratch::new("sampling's lists and partial results"),
                recording: Recording::default(),
                steps: Steps::new(&driver),
                driver,
            }),
        })
    }

    pub fn config(&self) -> CudaConfig {
        self.shared.config
    }

    fn alloc_in(
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

impl Backend for CudaBackend {
    type Buffer = CudaBuffer;
    type Weight = CudaLinear;
    type Embedding = CudaEmbedding;
    type Ticket = CudaTicket;

    fn activation_dtype(&self) -> DType {
        self.shared.config.dtype
    }

    fn check_kv(&self, dtype: DType, head_dim: usize) -> Result<(), ComputeError> {
        let own = self.shared.config.dtype;
        let reason = if dtype != own {
            format!("it keeps KV as its activations, in {own:?}")
        } else if !attention::takes_head_dim(head_dim) {
            "heads must be multiples of 8 up to 256".to_owned()
        } else {
            return Ok(());
        };
        Err(ComputeError::KvUnsupported {
            backend: "CUDA",
            dtype,
            head_dim,
            reason,
        })
    }

    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<CudaBuffer, ComputeError> {
        self.alloc_in(MemoryKind::Device, name, dtype, len)
    }

    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<CudaBuffer, ComputeError> {
        // Whole granules, for the sake of NICs.
        let granule = EXPORT_GRANULE / dtype.size_bytes();
        let whole = self.alloc(name, dtype, len.next_multiple_of(granule))?;
        Ok(whole.slice(0..len))
    }

    fn alloc_host(&self, name: &str, dtype: DType, len: usize) -> Result<CudaBuffer, ComputeError> {
        self.alloc_in(MemoryKind::Pinned, name, dtype, len)
    }

    fn export(&self, buffer: &CudaBuffer) -> Result<MemoryExport, ComputeError> {
        if !buffer.is_whole_granules() {
            return Err(ComputeError::NotExportable {
                what: format!("{buffer:?}"),
                reason: "it was not made by alloc_exportable".to_owned(),
            });
        }
        let memory = CudaMemory::of(&self.shared.driver, buffer);
        Ok(MemoryExport {
            addr: memory.addr(),
            len_bytes: memory.len(),
            handle: ExportHandle::Cuda(memory),
        })
    }

    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        interleave: bool,
    ) -> Result<CudaLinear, ComputeError> {
        weights::pack_linear(&self.shared, parts, interleave)
    }

    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<CudaEmbedding, ComputeError> {
        weights::pack_embedding(&self.shared, table)
    }

    fn reserve_linear(
        &self,
        weight: &CudaLinear,
        epilogue: Epilogue,
        rows: usize,
    ) -> Result<(), ComputeError> {
        let words = linear::scratch_words(&self.shared, weight, epilogue, rows);
        if words > 0 {
            self.shared.gate_up.reserve(&self.shared.driver, words)?;
        }
        Ok(())
    }

    fn upload<T: NoUninit>(&self, dst: &CudaBuffer, src: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(src);
        let len = bytes.len();
        assert!(len <= dst.size_bytes(), "{len} bytes exceed {dst:?}");
        self.shared.enqueue("upload", |shared| {
            let mut to = dst.addr();
            for part in bytes.chunks(BLOCK_BYTES_MAX) {
                shared.upload_with(to, part.len(), |block| block.copy_from_slice(part))?;
                to += part.len() as u64;
            }
            Ok(())
        });
    }

    fn read(&self, src: &CudaBuffer) -> CudaTicket {
        self.shared.read(src.addr(), src.size_bytes())
    }

    fn fence(&self) -> CudaTicket {
        self.shared.read(0, 0)
    }

    fn health(&self) -> Result<(), ComputeError> {
        self.shared.fault.check()
    }

    fn replays(&self) -> bool {
        true
    }

    fn replay(&self, step: impl FnOnce()) -> bool {
        let shared = &*self.shared;
        shared.recording.begin();
        step();
        let enqueued = shared
            .recording
            .end(&shared.steps, shared.fault.check().is_ok());
        enqueued.unwrap_or_else(|error| {
            shared.fault.keep("replay", error);
            false
        })
    }

    fn embed(&self, op: Embed<'_, Self>) {
        self.shared
            .enqueue("embed", |shared| copy::embed(shared, &op));
    }

    fn rms_norm(&self, op: RmsNorm<'_, Self>) {
        self.shared
            .enqueue("rms_norm", |shared| norm::rms_norm(shared, &op));
    }

    fn linear(&self, op: Linear<'_, Self>) {
        self.shared
            .enqueue("linear", |shared| linear::linear(shared, &op));
    }

    fn norm_linear(&self, norm: RmsNorm<'_, Self>, op: Linear<'_, Self>) {
        let run = |shared: &Shared| linear::norm_linear(shared, &norm, &op);
        self.shared.enqueue("norm_linear", run);
    }

    fn rope_table(&self, op: RopeTable<'_, Self>) {
        self.shared
            .enqueue("rope_table", |shared| norm::rope_table(shared, &op));
    }

    fn qkv_prep(&self, op: QkvPrep<'_, Self>) {
        self.shared
            .enqueue("qkv_prep", |shared| qkv::qkv_prep(shared, &op));
    }

    fn attn_paged(&self, op: AttnPaged<'_, Self>) {
        self.shared
            .enqueue("attn_paged", |shared| attention::attn_paged(shared, &op));
    }

    fn gather_rows(&self, op: GatherRows<'_, Self>) {
        self.shared
            .enqueue("gather_rows", |shared| copy::gather_rows(shared, &op));
    }

    fn sample(&self, op: Sample<'_, Self>) {
        self.shared
            .enqueue("sample", |shared| sample::sample(shared, &op));
    }

    fn copy_pages(&self, op: CopyPages<'_, Self>) {
        self.shared
            .enqueue("copy_pages", |shared| copy::copy_pages(shared, &op));
    }
}

// === impl Shared ===

impl Shared {
    /// Runs `op` unless the stream has faulted; its error is the stream's fault.
    fn enqueue(&self, name: &'static str, op: impl FnOnce(&Self) -> Result<(), DriverError>) {
        if self.fault.check().is_ok()
            && let Err(error) = op(self)
        {
            self.fault.keep(name, error);
        }
    }

    /// One kernel; an empty grid is none.
    pub(super) fn launch<A: Pod>(
        &self,
        kernel: Kernel,
        grid: [u32; 3],
        shared_bytes: usize,
        args: &A,
    ) -> Result<(), DriverError> {
        let args = bytemuck::bytes_of(args);
        assert_eq!(
            args.len(),
            kernel.args_bytes(),
            "the arguments of {kernel:?}"
        );
        if grid.contains(&0) {
            return Ok(());
        }
        self.work(&Work::Launch(Launch {
            kernel,
            grid,
            shared_bytes: to_u32(shared_bytes),
            args,
        }))
    }

    /// Enqueues it, or notes it where a step is being noted.
    pub(super) fn work(&self, work: &Work<'_>) -> Result<(), DriverError> {
        if self.recording.note(work) {
            return Ok(());
        }
        // SAFETY: a launch's struct is the kernel's by its size and by the op that made it; buffers in it
        // were checked to be as large as the kernel goes, and stay until the stream is past it.
        unsafe { self.driver.enqueue(work) }
    }

    /// Address of at least `words` words of 32 bits for ops of one kind.
    pub(super) fn scratch(&self, scratch: &Scratch, words: usize) -> Result<u64, DriverError> {
        if !scratch.holds(words) {
            self.recording.cut(&*self.driver)?;
        }
        let reserved = scratch.reserve(&self.driver, words);
        reserved.map_err(|error| DriverError {
            call: "scratch",
            reason: error.to_string(),
        })
    }

    /// Copies `len` bytes that `fill` puts into a block to the device.
    pub(super) fn upload_with(
        &self,
        to: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), DriverError> {
        assert!(!self.recording.is_on(), "a replayed step uploads nothing");
        if len == 0 {
            return Ok(());
        }
        let mut block = self.pinned.take(len)?;
        fill(block.bytes_mut(len));
        // SAFETY: the destination is of the caller's buffer.
        unsafe { block.copy_to(to, len) }?;
        block.use_until(&StreamEvent::record(&self.driver)?);
        Ok(())
    }

    fn read(self: &Arc<Self>, from: u64, len_bytes: usize) -> CudaTicket {
        let started = self.fault.check().and_then(|()| {
            self.start_read(from, len_bytes)
                .map_err(|error| self.fault.keep("read", error))
        });
        CudaTicket::new(self, started.unwrap_or_else(Pending::Failed))
    }

    fn start_read(&self, from: u64, len_bytes: usize) -> Result<Pending, DriverError> {
        assert!(!self.recording.is_on(), "a replayed step reads nothing");
        let mut blocks = Vec::with_capacity(len_bytes.div_ceil(BLOCK_BYTES_MAX));
        for start in (0..len_bytes).step_by(BLOCK_BYTES_MAX) {
            let len = BLOCK_BYTES_MAX.min(len_bytes - start);
            let mut block = self.pinned.take(len)?;
            // SAFETY: the source is of the caller's buffer.
            unsafe { block.copy_from(from + start as u64, len) }?;
            blocks.push(block);
        }
        let end = StreamEvent::record(&self.driver)?;
        blocks.iter_mut().for_each(|block| block.use_until(&end));
        Ok(Pending::Copying {
            blocks,
            len_bytes,
            end,
        })
    }
}
