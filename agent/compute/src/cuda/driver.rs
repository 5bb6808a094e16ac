//! What the backend needs of a driver: memory, copies, launches and events on one stream of one
//! device. Calls return immediately unless they say otherwise; the stream runs them in order.

use super::kernels::Kernel;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// A device that runs [`Kernel`]s. Any thread may call.
///
/// # Safety
/// Memory from `alloc` and `alloc_pinned` is disjoint, zeroed, aligned to 16 bytes and stays until it
/// is freed; `done` says true only when everything before the event has ended.
pub unsafe trait Driver: Debug + Send + Sync + 'static {
    fn device(&self) -> &DeviceInfo;

    /// Device memory that is not in use, by anyone.
    ///
    /// # Errors
    /// When the driver does not say.
    fn free_bytes(&self) -> Result<usize, DriverError>;

    /// Device memory; its address.
    ///
    /// # Errors
    /// When there is not so much.
    fn alloc(&self, bytes: usize) -> Result<u64, DriverError>;

    /// Waits for the stream first.
    ///
    /// # Safety
    /// `addr` is from `alloc`, is freed once, and nothing is enqueued that uses it afterwards.
    unsafe fn free(&self, addr: u64);

    /// Host memory that the device reaches under the same address.
    ///
    /// # Errors
    /// When there is not so much.
    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>, DriverError>;

    /// Waits for the stream first.
    ///
    /// # Safety
    /// As for `free`.
    unsafe fn free_pinned(&self, place: NonNull<u8>);

    /// Enqueues a copy between device and pinned memory, in any direction.
    ///
    /// # Errors
    /// When the driver refuses it.
    ///
    /// # Safety
    /// Both ranges are allocated, and stay so until it is done.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError>;

    /// Whether [`Work::Gemm`] is available: the vendor's library is there.
    fn has_gemm(&self) -> bool;

    /// Enqueues a kernel or a product.
    ///
    /// # Errors
    /// When driver or library refuse it.
    ///
    /// # Safety
    /// A launch's `args` are the struct of the kernel, and what they point to is as the kernel needs it; a
    /// product's matrices are as large as it says. Both stay until the stream is past them.
    unsafe fn enqueue(&self, work: &Work<'_>) -> Result<(), DriverError>;

    /// Makes a graph of what was enqueued before in this order; enqueues nothing.
    ///
    /// # Errors
    /// When the driver refuses it, or has no memory for it.
    ///
    /// # Safety
    /// As for `enqueue`.
    unsafe fn capture(&self, works: &[Work<'_>]) -> Result<Graph, DriverError>;

    /// Enqueues a graph's work.
    ///
    /// # Errors
    /// When the driver refuses it.
    ///
    /// # Safety
    /// As for `enqueue`, of everything in it.
    unsafe fn replay(&self, graph: &Graph) -> Result<(), DriverError>;

    /// Takes the graph back, which may still run.
    fn destroy_graph(&self, graph: Graph);

    /// Enqueues a copy beside the stream, on another that only [`Self::sync_side_stream`] waits for. Host memory
    /// that is not pinned is allowed here.
    ///
    /// # Errors
    /// When the driver refuses it.
    ///
    /// # Safety
    /// Both ranges are allocated or opened, and stay so until `sync_side_stream` returns.
    unsafe fn side_copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError>;

    /// Blocks until all copies beside the stream have ended.
    ///
    /// # Errors
    /// The error of one of them.
    fn sync_side_stream(&self) -> Result<(), DriverError>;

    /// What another process opens this memory by; `addr` is from `alloc`.
    ///
    /// # Errors
    /// When the memory cannot be shared.
    fn ipc_handle(&self, addr: u64) -> Result<IpcHandle, DriverError>;

    /// `bytes` of another process's memory, to copy from; their address here. They may be opened again, and
    /// are closed as often.
    ///
    /// # Errors
    /// When there is no such memory, it is smaller, or this device does not reach it.
    fn open_ipc(&self, handle: &IpcHandle, bytes: usize) -> Result<u64, DriverError>;

    /// Waits for the copies beside the stream first.
    ///
    /// # Safety
    /// `addr` is from `open_ipc`, is closed once for each time it was opened, and nothing uses it afterwards.
    unsafe fn close_ipc(&self, addr: u64);

    /// The memory as a dma-buf, for a NIC; `addr` is from `alloc`, `bytes` a multiple of 64 KiB.
    ///
    /// # Errors
    /// When driver or kernel do not support it.
    fn dma_buf(&self, addr: u64, bytes: usize) -> Result<OwnedFd, DriverError>;

    /// Makes what NICs have written visible to kernels that are enqueued after it.
    ///
    /// # Errors
    /// When the driver cannot.
    fn flush_remote_writes(&self) -> Result<(), DriverError>;

    /// Marks this point of the stream.
    ///
    /// # Errors
    /// When the driver has no event left.
    fn record(&self) -> Result<Event, DriverError>;

    /// Whether the stream has passed the event.
    ///
    /// # Errors
    /// The error of something enqueued before.
    fn is_done(&self, event: &Event) -> Result<bool, DriverError>;

    /// Blocks until the stream has passed the event.
    ///
    /// # Errors
    /// The error of something enqueued before.
    fn wait(&self, event: &Event) -> Result<(), DriverError>;

    /// Takes the event back.
    fn release(&self, event: Event);
}

/// Names memory of a process to others on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpcHandle {
    /// Of the block that holds the memory, as the driver names it.
    pub bytes: [u8; 64],
    /// Where the memory begins in it.
    pub offset: u64,
}

// === impl IpcHandle ===

impl IpcHandle {
    pub const BYTES: usize = 72;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut encoded = [0; Self::BYTES];
        encoded[..64].copy_from_slice(&self.bytes);
        encoded[64..].copy_from_slice(&self.offset.to_le_bytes());
        encoded
    }

    /// Where `bytes` begin in the block, which has `block_bytes`. A peer may have said anything.
    ///
    /// # Errors
    /// When they leave it.
    pub fn offset_in(&self, block_bytes: usize, bytes: usize) -> Result<u64, DriverError> {
        let end = self.offset.checked_add(bytes as u64);
        if end.is_some_and(|end| end <= block_bytes as u64) {
            return Ok(self.offset);
        }
        Err(DriverError {
            call: "cuIpcOpenMemHandle",
            reason: format!(
                "{bytes} bytes from {} on leave the peer's block of {block_bytes}; are both of one version?",
                self.offset
            ),
        })
    }

    /// `None` where the length is another.
    pub fn decode(encoded: &[u8]) -> Option<Self> {
        let (bytes, offset) = encoded.split_at_checked(64)?;
        Some(Self {
            bytes: bytes.try_into().ok()?,
            offset: u64::from_le_bytes(offset.try_into().ok()?),
        })
    }
}

/// What launches and plans depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub name: String,
    /// Streaming multiprocessors.
    pub num_sms: u32,
    pub memory_bytes: usize,
    /// Major and minor.
    pub compute_capability: (u32, u32),
}

// === impl DeviceInfo ===

impl DeviceInfo {
    /// Whether it runs what `build.rs` compiles for Hopper: the only code with products of a warpgroup, and whose
    /// kernels wait for those before them.
    pub fn is_hopper(&self) -> bool {
        self.compute_capability == (9, 0)
    }
}

/// What a stream computes.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    Launch(Launch<'a>),
    /// By the vendor's library.
    Gemm(Gemm),
}

/// One kernel over a grid of blocks.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub kernel: Kernel,
    pub grid: [u32; 3],
    /// Dynamic shared memory per block.
    pub shared_bytes: u32,
    /// The kernel's one argument, a struct.
    pub args: &'a [u8],
}

/// `out = x·Wᵀ`, or `out += x·Wᵀ`, for row-major bfloat16 `x [rows][k]` and `weight [n][k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    pub x: u64,
    pub weight: u64,
    /// `[rows][n]`.
    pub out: u64,
    pub rows: usize,
    pub n: usize,
    pub k: usize,
    pub adds: bool,
    /// Whether `out` is f32, not bfloat16.
    pub to_f32: bool,
}

/// A point of the stream, to be given back with [`Driver::release`].
#[derive(Debug)]
pub struct Event(pub u64);

/// Work that is enqueued at once, to be given back with [`Driver::destroy_graph`].
#[derive(Debug)]
pub struct Graph(pub u64);

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {reason}")]
pub struct DriverError {
    /// The driver's function, or the kernel.
    pub call: &'static str,
    /// The driver's name and text of the error.
    pub reason: String,
}
