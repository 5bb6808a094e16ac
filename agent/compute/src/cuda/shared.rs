//! What the handles and tickets of a backend share, and how work reaches its stream.

use super::driver::{Driver, DriverError, Launch, Work};
use super::fault::FaultWord;
use super::kernels::{Kernel, to_u32};
use super::pinned::PinnedPool;
use super::replay::{Recording, Steps};
use super::saturations::Saturations;
use super::scratch::Scratch;
use super::stream_event::StreamEvent;
use crate::dtype::DType;
use crate::error::ComputeError;
use bytemuck::Pod;
use std::sync::Arc;

/// How the CUDA backend runs.
#[derive(Clone, Copy, Debug)]
pub struct CudaConfig {
    /// Of weights and activations: `BF16`, or `F32` for the faithful path.
    pub dtype: DType,
    /// A row's bits depend on neither batch-mates nor chunking.
    pub deterministic: bool,
}

/// What the handles and tickets of a backend share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: CudaConfig,
    pub(super) fault: FaultWord,
    pub(super) saturations: Saturations,
    pub(super) pinned: Arc<PinnedPool>,
    /// Gate and up before they are joined.
    pub(super) gate_up: Scratch,
    /// Of attention over several splits.
    pub(super) partials: Scratch,
    pub(super) arrivals: Scratch,
    /// Of experts: choices sorted by expert, and their tiles.
    pub(super) choices: Scratch,
    /// Of sampling: lists and partial results.
    pub(super) sampling: Scratch,
    pub(super) recording: Recording,
    pub(super) steps: Steps,
    pub(super) driver: Arc<dyn Driver>,
}

// === impl Shared ===

impl Shared {
    /// # Errors
    /// When the driver has no memory for what every op needs.
    pub(super) fn new(driver: Arc<dyn Driver>, config: CudaConfig) -> Result<Self, ComputeError> {
        Ok(Self {
            config,
            fault: FaultWord::new(&driver)?,
            saturations: Saturations::new(&driver)?,
            pinned: PinnedPool::new(&driver),
            gate_up: Scratch::new("gate and up of a product"),
            partials: Scratch::new("attention's partial sums"),
            arrivals: Scratch::new("attention's arrivals"),
            choices: Scratch::new("experts' choices"),
            sampling: Scratch::new("sampling's lists and partial results"),
            recording: Recording::default(),
            steps: Steps::new(&driver),
            driver,
        })
    }

    /// Runs `op` unless the stream has faulted; its error is the stream's fault.
    pub(super) fn enqueue(
        &self,
        name: &'static str,
        op: impl FnOnce(&Self) -> Result<(), DriverError>,
    ) {
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
}
