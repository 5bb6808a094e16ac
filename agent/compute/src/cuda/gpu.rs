//! The driver of a real GPU: libcuda, and cuBLASLt where it is, opened at run time, and the kernels that
//! are in this binary.

mod blas;
mod launch;

use super::driver::{DeviceInfo, Driver, DriverError, Event, Graph, IpcHandle, Work};
use super::kernels::Kernel;
use blas::Blas;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// What `build.rs` made of the `.cu` files.
mod compiled {
    /// Aligned as the driver reads it.
    #[repr(C, align(16))]
    pub(super) struct Aligned<B: ?Sized>(pub(super) B);

    include!(concat!(env!("OUT_DIR"), "/fatbins.rs"));
}

/// Registers, spills and shared memory of every kernel, by architecture.
pub const KERNEL_REPORT: &str = compiled::REPORT;

/// One GPU with one stream.
#[derive(Debug)]
pub struct GpuDriver {
    device: DeviceInfo,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// For copies that are no part of the model's work.
    beside: sys::CUstream,
    /// Without it, products of many rows take a kernel of our own.
    blas: Option<Blas>,
    modules: Vec<sys::CUmodule>,
    /// In the order of [`Kernel::ALL`].
    functions: Vec<sys::CUfunction>,
    /// Peers' memory, as often as it was opened.
    opened: Mutex<Vec<Opened>>,
    /// Not in use.
    events: Mutex<Vec<EventPtr>>,
}

/// A peer's memory by its address here, and the block that holds it.
#[derive(Debug)]
struct Opened {
    addr: u64,
    block: u64,
}

#[derive(Debug)]
struct EventPtr(sys::CUevent);

// SAFETY: an event may be used from any thread.
unsafe impl Send for EventPtr {}
// SAFETY: the driver's handles may be used from any thread whose current context is theirs.
unsafe impl Send for GpuDriver {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for GpuDriver {}

thread_local! {
    /// The context that this thread has entered.
    static ENTERED: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

fn failed(call: &'static str) -> impl FnOnce(result::DriverError) -> DriverError {
    fn text(found: Result<&CStr, result::DriverError>) -> &str {
        found.map_or("unknown", |text| text.to_str().unwrap_or("unknown"))
    }
    move |error| DriverError {
        call,
        reason: format!(
            "{} ({})",
            text(error.error_name()),
            text(error.error_string())
        ),
    }
}

fn unusable(call: &'static str, reason: String) -> DriverError {
    DriverError { call, reason }
}

// === impl GpuDriver ===

impl GpuDriver {
    /// Opens the `ordinal`th GPU that `CUDA_VISIBLE_DEVICES` leaves.
    ///
    /// # Errors
    /// Says what is missing: the driver, the device, or a kernel for it.
    pub fn open(ordinal: u32) -> Result<Self, DriverError> {
        // SAFETY: it opens the library and does nothing with it.
        if !unsafe { sys::is_culib_present() } {
            let reason =
                "libcuda.so.1 is not to be found: there is no NVIDIA driver here".to_owned();
            return Err(unusable("dlopen", reason));
        }
        result::init().map_err(failed("cuInit"))?;
        let count = result::device::get_count().map_err(failed("cuDeviceGetCount"))?;
        let index = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        if index >= count {
            let reason = format!("GPU {ordinal} of {count} visible ones does not exist");
            return Err(unusable("cuDeviceGet", reason));
        }
        let handle = result::device::get(index).map_err(failed("cuDeviceGet"))?;
        let device = describe(handle)?;
        // SAFETY: the device exists; the context is released by `drop`.
        let context = unsafe { result::primary_ctx::retain(handle) }
            .map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let mut driver = Self {
            device,
            handle,
            context,
            stream: std::ptr::null_mut(),
            beside: std::ptr::null_mut(),
            blas: None,
            modules: Vec::new(),
            functions: Vec::new(),
            opened: Mutex::default(),
            events: Mutex::default(),
        };
        driver.enter()?;
        let stream = || {
            result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(failed("cuStreamCreate"))
        };
        driver.stream = stream()?;
        driver.beside = stream()?;
        driver.load_kernels()?;
        driver.blas = Blas::open(driver.stream)?;
        if driver.blas.is_none() {
            tracing::info!("libcublasLt not found; using kernels of our own for long prompts");
        }
        Ok(driver)
    }

    fn load_kernels(&mut self) -> Result<(), DriverError> {
        let mut module_of = HashMap::new();
        for (fatbin, kernels) in compiled::FATBINS {
            let image: *const c_void = fatbin.as_ptr().cast();
            // SAFETY: the image is a whole fat binary, as nvcc wrote it.
            let module = unsafe { result::module::load_data(image) };
            let module = module.map_err(failed("cuModuleLoadData"))?;
            self.modules.push(module);
            module_of.extend(kernels.iter().map(|&kernel| (kernel, module)));
        }
        let shared_max = attribute(
            self.handle,
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?;
        for kernel in Kernel::ALL {
            let module = module_of.get(kernel.name()).ok_or_else(|| {
                let reason = format!("no kernel is named {}", kernel.name());
                unusable("cuModuleGetFunction", reason)
            })?;
            let name = CString::new(kernel.name()).expect("a symbol holds no NUL");
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(*module, name) }
                .map_err(failed("cuModuleGetFunction"))?;
            let shared =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is of a loaded module; kernels have no other shared memory.
            unsafe { result::function::set_function_attribute(function, shared, shared_max) }
                .map_err(failed("cuFuncSetAttribute"))?;
            self.functions.push(function);
        }
        Ok(())
    }

    /// Makes the context this thread's.
    fn enter(&self) -> Result<(), DriverError> {
        if ENTERED.get() != self.context {
            // SAFETY: the context lives as long as `self`.
            unsafe { result::ctx::set_current(self.context) }.map_err(failed("cuCtxSetCurrent"))?;
            ENTERED.set(self.context);
        }
        Ok(())
    }

    /// Zeroes memory at once: neither kernels nor copies beside the stream find what was there before.
    ///
    /// # Safety
    /// The range is allocated and unused.
    unsafe fn zero(&self, addr: u64, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: the caller's.
        unsafe { result::memset_d8_async(addr, 0, bytes, self.stream) }
            .map_err(failed("cuMemsetD8Async"))?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed("cuStreamSynchronize"))
    }

    /// Waits until the stream has run dry, so that nothing uses what is freed next. A fault of the stream
    /// is reported elsewhere.
    fn drain(&self) {
        if self.enter().is_ok() {
            // SAFETY: the stream lives as long as `self`.
            let drained = unsafe { result::stream::synchronize(self.stream) };
            if let Err(error) = drained {
                tracing::debug!(?error, "stream ended with a fault");
            }
            if let Err(error) = self.sync_side_stream() {
                tracing::debug!(%error, "side stream ended with a fault");
            }
        }
    }
}

/// Beginning and bytes of the block that holds `addr`.
fn block_of(addr: u64) -> Result<(u64, usize), DriverError> {
    let (mut block, mut bytes) = (0, 0);
    // SAFETY: the places are ours; an address of nothing is refused.
    unsafe { sys::cuMemGetAddressRange_v2(&raw mut block, &raw mut bytes, addr) }
        .result()
        .map_err(failed("cuMemGetAddressRange"))?;
    Ok((block, bytes))
}

/// Closes a peer's block once.
///
/// # Safety
/// It is open, and nothing uses what was opened with it.
unsafe fn close_block(block: u64) {
    // SAFETY: the caller's.
    if let Err(error) = unsafe { sys::cuIpcCloseMemHandle(block) }.result() {
        tracing::debug!(?error, block, "could not close a peer's memory");
    }
}

fn attribute(device: sys::CUdevice, attribute: Attribute) -> Result<i32, DriverError> {
    // SAFETY: the device exists.
    unsafe { result::device::get_attribute(device, attribute) }
        .map_err(failed("cuDeviceGetAttribute"))
}

fn describe(device: sys::CUdevice) -> Result<DeviceInfo, DriverError> {
    let number = |which| attribute(device, which).map(i32::unsigned_abs);
    Ok(DeviceInfo {
        name: result::device::get_name(device).map_err(failed("cuDeviceGetName"))?,
        num_sms: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        // SAFETY: the device exists.
        memory_bytes: unsafe { result::device::total_mem(device) }
            .map_err(failed("cuDeviceTotalMem"))?,
        compute_capability: (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
    })
}

// SAFETY: cuMemAlloc and cuMemHostAlloc align to 256 bytes and more and hand out disjoint ranges, which
// are zeroed here; an event has passed only when all work before it has.
unsafe impl Driver for GpuDriver {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn free_bytes(&self) -> Result<usize, DriverError> {
        self.enter()?;
        let (free, _) = result::mem_get_info().map_err(failed("cuMemGetInfo"))?;
        Ok(free)
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DriverError> {
        self.enter()?;
        // SAFETY: the caller that gets the address owns the memory.
        let addr = unsafe { result::malloc_sync(bytes) }.map_err(failed("cuMemAlloc"))?;
        // SAFETY: the range was just allocated.
        let zeroed = unsafe { self.zero(addr, bytes) };
        if zeroed.is_err() {
            // SAFETY: the address was not given out.
            unsafe { self.free(addr) };
        }
        zeroed.map(|()| addr)
    }

    unsafe fn free(&self, addr: u64) {
        self.drain();
        // SAFETY: the caller's; nothing uses the memory any more.
        if let Err(error) = unsafe { result::free_sync(addr) } {
            tracing::debug!(?error, addr, "could not free device memory");
        }
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>, DriverError> {
        self.enter()?;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the caller that gets the address owns the memory.
        let place =
            unsafe { result::malloc_host(bytes, flags) }.map_err(failed("cuMemHostAlloc"))?;
        let place = NonNull::new(place.cast::<u8>()).expect("an allocation is not at null");
        // SAFETY: the range was just allocated.
        unsafe { place.write_bytes(0, bytes) };
        Ok(place)
    }

    unsafe fn free_pinned(&self, place: NonNull<u8>) {
        self.drain();
        // SAFETY: the caller's; nothing uses the memory any more.
        if let Err(error) = unsafe { result::free_host(place.as_ptr().cast()) } {
            tracing::debug!(?error, "could not free pinned memory");
        }
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        self.enter()?;
        // SAFETY: the caller's; addresses are unified, so the driver knows which side each is on.
        unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream) }
            .result()
            .map_err(failed("cuMemcpyAsync"))
    }

    fn has_gemm(&self) -> bool {
        self.blas.is_some()
    }

    unsafe fn enqueue(&self, work: &Work<'_>) -> Result<(), DriverError> {
        self.enter()?;
        match work {
            Work::Launch(kernel) => {
                let function = self.functions[kernel.kernel as usize];
                let overlaps = self.device.is_hopper();
                // SAFETY: the caller's; only Hopper's code, which waits, overlaps.
                unsafe { launch::launch(function, self.stream, overlaps, kernel) }
            }
            Work::Gemm(gemm) => {
                let blas = self.blas.as_ref();
                let blas = blas.ok_or_else(|| {
                    unusable(
                        "cublasLtMatmul",
                        "libcublasLt is not to be found".to_owned(),
                    )
                })?;
                // SAFETY: the caller's.
                unsafe { blas.gemm(gemm) }
            }
        }
    }

    unsafe fn capture(&self, works: &[Work<'_>]) -> Result<Graph, DriverError> {
        self.enter()?;
        // Calls of other threads are no part of it, and are allowed meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::begin_capture(self.stream, mode) }
            .map_err(failed("cuStreamBeginCapture"))?;
        // SAFETY: the caller's.
        let enqueued = works
            .iter()
            .try_for_each(|work| unsafe { self.enqueue(work) });
        // A capture that has failed is ended, too.
        // SAFETY: as above.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        let graph = graph.map_err(failed("cuStreamEndCapture"));
        enqueued.and(graph.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let graph = graph?;
        // SAFETY: the graph is whole, and not used after it is destroyed.
        let exec = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: as above.
        if let Err(error) = unsafe { result::graph::destroy(graph) } {
            tracing::debug!(?error, "could not free a graph's template");
        }
        let exec = exec.map_err(failed("cuGraphInstantiate"))?;
        Ok(Graph(exec as u64))
    }

    unsafe fn replay(&self, graph: &Graph) -> Result<(), DriverError> {
        self.enter()?;
        // SAFETY: the graph is from `capture` and was not forgotten; what it uses is the caller's.
        unsafe { result::graph::launch(graph.0 as sys::CUgraphExec, self.stream) }
            .map_err(failed("cuGraphLaunch"))
    }

    fn destroy_graph(&self, graph: Graph) {
        let entered = self.enter();
        // SAFETY: it has no other owner; the driver lets one that runs end first.
        let destroyed = unsafe { result::graph::exec_destroy(graph.0 as sys::CUgraphExec) };
        if entered.is_err() || destroyed.is_err() {
            tracing::debug!("could not free a graph");
        }
    }

    unsafe fn side_copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        self.enter()?;
        // SAFETY: the caller's; addresses are unified, so the driver knows which side each is on.
        unsafe { sys::cuMemcpyAsync(to, from, bytes, self.beside) }
            .result()
            .map_err(failed("cuMemcpyAsync"))
    }

    fn sync_side_stream(&self) -> Result<(), DriverError> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.beside) }.map_err(failed("cuStreamSynchronize"))
    }

    fn ipc_handle(&self, addr: u64) -> Result<IpcHandle, DriverError> {
        self.enter()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: `addr` is of this process; the place is ours.
        unsafe { sys::cuIpcGetMemHandle(&raw mut handle, addr) }
            .result()
            .map_err(failed("cuIpcGetMemHandle"))?;
        let (block, _) = block_of(addr)?;
        Ok(IpcHandle {
            bytes: handle.reserved.map(i8::cast_unsigned),
            offset: addr - block,
        })
    }

    fn open_ipc(&self, handle: &IpcHandle, bytes: usize) -> Result<u64, DriverError> {
        self.enter()?;
        let named = sys::CUipcMemHandle {
            reserved: handle.bytes.map(u8::cast_signed),
        };
        let lazily = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut block = 0;
        // A block that is open already is the same one, which the driver counts.
        // SAFETY: the place is ours; a handle that names nothing is refused.
        unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut block, named, lazily) }
            .result()
            .map_err(failed("cuIpcOpenMemHandle"))?;
        let offset =
            block_of(block).and_then(|(_, block_bytes)| handle.offset_in(block_bytes, bytes));
        match offset {
            Ok(offset) => {
                let addr = block + offset;
                self.opened.lock().push(Opened { addr, block });
                Ok(addr)
            }
            Err(error) => {
                // SAFETY: it was just opened, and not given out.
                unsafe { close_block(block) };
                Err(error)
            }
        }
    }

    unsafe fn close_ipc(&self, addr: u64) {
        let opened = {
            let mut all = self.opened.lock();
            let place = all.iter().position(|opened| opened.addr == addr);
            place.map(|place| all.swap_remove(place))
        };
        let Some(Opened { block, .. }) = opened else {
            return;
        };
        if let Err(error) = self.sync_side_stream() {
            tracing::debug!(%error, "copies from a peer's memory ended with a fault");
        }
        // SAFETY: the caller's; what is closed is the block that was opened.
        unsafe { close_block(block) };
    }

    fn dma_buf(&self, addr: u64, bytes: usize) -> Result<OwnedFd, DriverError> {
        self.enter()?;
        let mut fd: c_int = -1;
        let kind = sys::CUmemRangeHandleType_enum::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        // SAFETY: the range is of this process; the place takes a file descriptor.
        unsafe { sys::cuMemGetHandleForAddressRange((&raw mut fd).cast(), addr, bytes, kind, 0) }
            .result()
            .map_err(failed("cuMemGetHandleForAddressRange"))?;
        // SAFETY: the driver has just opened it for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn flush_remote_writes(&self) -> Result<(), DriverError> {
        self.enter()?;
        let target = sys::CUflushGPUDirectRDMAWritesTarget_enum::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
        let scope =
            sys::CUflushGPUDirectRDMAWritesScope_enum::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
        // SAFETY: it takes no memory of ours.
        unsafe { sys::cuFlushGPUDirectRDMAWrites(target, scope) }
            .result()
            .map_err(failed("cuFlushGPUDirectRDMAWrites"))
    }

    fn record(&self) -> Result<Event, DriverError> {
        self.enter()?;
        let free = self.events.lock().pop();
        let event = match free {
            Some(EventPtr(event)) => event,
            None => result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
                .map_err(failed("cuEventCreate"))?,
        };
        // SAFETY: event and stream are of this context.
        let recorded = unsafe { result::event::record(event, self.stream) };
        if recorded.is_err() {
            self.events.lock().push(EventPtr(event));
        }
        recorded.map_err(failed("cuEventRecord"))?;
        Ok(Event(event as u64))
    }

    fn is_done(&self, event: &Event) -> Result<bool, DriverError> {
        self.enter()?;
        // SAFETY: the event is from `record` and was not released.
        match unsafe { result::event::query(event.0 as sys::CUevent) } {
            Ok(()) => Ok(true),
            Err(result::DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(failed("cuEventQuery")(error)),
        }
    }

    fn wait(&self, event: &Event) -> Result<(), DriverError> {
        self.enter()?;
        // SAFETY: the event is from `record` and was not released.
        unsafe { result::event::synchronize(event.0 as sys::CUevent) }
            .map_err(failed("cuEventSynchronize"))
    }

    fn release(&self, event: Event) {
        self.events.lock().push(EventPtr(event.0 as sys::CUevent));
    }
}

impl Drop for GpuDriver {
    fn drop(&mut self) {
        self.drain();
        let freed = |what, freed: Result<(), result::DriverError>| {
            if let Err(error) = freed {
                tracing::debug!(?error, what, "could not free a handle");
            }
        };
        for EventPtr(event) in self.events.get_mut().drain(..) {
            // SAFETY: the stream is idle, and the event has no holder.
            freed("event", unsafe { result::event::destroy(event) });
        }
        for module in self.modules.drain(..) {
            // SAFETY: none of its functions runs.
            freed("module", unsafe { result::module::unload(module) });
        }
        if let Some(blas) = &self.blas {
            blas.close();
        }
        for stream in [self.stream, self.beside] {
            if !stream.is_null() {
                // SAFETY: the streams have run dry.
                freed("stream", unsafe { result::stream::destroy(stream) });
            }
        }
        // A context retained later at this address must be entered again.
        ENTERED.set(std::ptr::null_mut());
        // SAFETY: retained once, by `open`.
        freed("context", unsafe {
            result::primary_ctx::release(self.handle)
        });
    }
}
