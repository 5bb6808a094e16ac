//! A [`Driver`] without a GPU: the same kernels, compiled for the host, their threads as fibres.
//!
//! It is for tests and built to find faults. Allocations end at a page that may not be touched.
//! Nothing runs before it is waited for or polled, as on a slow stream, so memory that is reused
//! too early shows. Memory is limited to the claimed size of the device. See `cpp/emulation.h` for
//! the checks within a kernel.

mod command;
mod gemm;

use command::Command;
use gemm::multiply;
use parking_lot::Mutex;
use pd_compute::cuda::driver::{DeviceInfo, Driver, DriverError, Event, Graph, IpcHandle, Work};
use pd_compute::cuda::kernels::{CONSTANTS, Kernel};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const ERROR_BYTES: usize = 512;
const PAGE: usize = 4096;
/// What a graph takes of the device's memory.
const GRAPH_BYTES: usize = 64 << 10;
/// Of allocations, as far as kernels need it.
const ALIGNMENT: usize = 16;

unsafe extern "C" {
    fn pd_emulation_find(
        name: *const c_char,
        args_bytes: *mut usize,
        threads: *mut u32,
    ) -> *const c_void;
    fn pd_emulation_constant(name: *const c_char, value: *mut usize) -> bool;
    fn pd_emulation_launch(
        kernel: *const c_void,
        grid: *const u32,
        threads: u32,
        shared_bytes: usize,
        args: *const c_void,
        descending: bool,
        error: *mut c_char,
        error_len: usize,
    );
}

/// A device on the host.
#[derive(Debug)]
pub struct EmulatedDriver {
    device: DeviceInfo,
    kernels: HashMap<Kernel, KernelPtr>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct KernelPtr(*const c_void);

// SAFETY: it points to a static description that is never written.
unsafe impl Send for KernelPtr {}
// SAFETY: as above.
unsafe impl Sync for KernelPtr {}

#[derive(Debug, Default)]
struct State {
    /// By their address.
    allocations: BTreeMap<u64, Allocation>,
    device_bytes: usize,
    queue: VecDeque<Command>,
    next_event: u64,
    /// Every event up to this one has passed.
    passed: u64,
    fault: Option<DriverError>,
    launches: u64,
    log: Vec<Kernel>,
    /// By the address of the memory that they take.
    graphs: HashMap<u64, Vec<Command>>,
    replays: u64,
    refusal: Option<Refusal>,
}

/// Calls of that name are let through so often, then refused once.
#[derive(Debug)]
struct Refusal {
    call: &'static str,
    after: usize,
}

#[derive(Debug)]
struct Allocation {
    mapping: u64,
    mapping_bytes: usize,
    bytes: usize,
    is_device: bool,
    /// Behind the mapping, so that other processes may map it too.
    file: OwnedFd,
}

// === impl EmulatedDriver ===

impl EmulatedDriver {
    /// A device with so much memory.
    ///
    /// # Panics
    /// When a kernel is missing, or takes other arguments or threads than its name says, or when a constant of
    /// the kernels has another value for those who launch them.
    pub fn new(memory_bytes: usize) -> Self {
        for (name, value) in CONSTANTS {
            assert_eq!(constant(name), Some(*value), "{name} of the kernels");
        }
        let kernels = Kernel::ALL.iter().map(|kernel| {
            let name = CString::new(kernel.name()).expect("a symbol holds no NUL");
            let (mut args_bytes, mut threads) = (0, 0);
            // SAFETY: the name ends with NUL, and the places are ours.
            let found =
                unsafe { pd_emulation_find(name.as_ptr(), &raw mut args_bytes, &raw mut threads) };
            assert!(!found.is_null(), "no kernel is named {}", kernel.name());
            assert_eq!(
                (args_bytes, threads),
                (kernel.args_bytes(), kernel.threads()),
                "argument bytes and threads of {}",
                kernel.name()
            );
            (*kernel, KernelPtr(found))
        });
        Self {
            kernels: kernels.collect(),
            device: DeviceInfo {
                name: "host emulation".to_owned(),
                // As an H100's, so that launches divide work as they do there.
                num_sms: 132,
                memory_bytes,
                compute_capability: (9, 0),
            },
            state: Mutex::default(),
        }
    }

    /// The same as an older or newer device, which takes other kernels.
    #[must_use]
    pub fn with_compute_capability(mut self, major: u32, minor: u32) -> Self {
        self.device.compute_capability = (major, minor);
        self
    }

    /// Kernels run so far, in order.
    pub fn log(&self) -> Vec<Kernel> {
        self.state.lock().log.clone()
    }

    /// Graphs that it holds.
    pub fn graphs(&self) -> usize {
        self.state.lock().graphs.len()
    }

    /// Graphs enqueued so far.
    pub fn replays(&self) -> u64 {
        self.state.lock().replays
    }

    /// Bytes of device memory that are allocated.
    pub fn device_bytes(&self) -> usize {
        self.state.lock().device_bytes
    }

    /// Bytes of pinned memory that are allocated.
    pub fn pinned_bytes(&self) -> usize {
        let state = self.state.lock();
        let all: usize = state.allocations.values().map(|a| a.bytes).sum();
        all - state.device_bytes
    }

    /// After `after` more calls of `call`, by CUDA's name, one is refused: allocations, copies, records and
    /// waits.
    pub fn refuse(&self, call: &'static str, after: usize) {
        self.state.lock().refusal = Some(Refusal { call, after });
    }

    fn alloc_in(&self, bytes: usize, is_device: bool) -> Result<u64, DriverError> {
        let mut state = self.state.lock();
        let call = if is_device {
            "cuMemAlloc"
        } else {
            "cuMemHostAlloc"
        };
        state.admit(call)?;
        let failed = |reason: String| DriverError { call, reason };
        if is_device && state.device_bytes + bytes > self.device.memory_bytes {
            return Err(failed(format!(
                "CUDA_ERROR_OUT_OF_MEMORY ({} of {} bytes are in use)",
                state.device_bytes, self.device.memory_bytes
            )));
        }
        let body = bytes.next_multiple_of(PAGE);
        let file = memfd(body + PAGE).map_err(|e| failed(e.to_string()))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapping = map(&file, body + PAGE, protection).map_err(|e| failed(e.to_string()))?;
        // SAFETY: the last page of the mapping just made.
        let guarded = unsafe {
            libc::mprotect(
                (mapping + body as u64) as *mut c_void,
                PAGE,
                libc::PROT_NONE,
            )
        };
        assert_eq!(guarded, 0, "a page of one's own may be protected");
        // The end lies at the guard.
        let addr = mapping + (body - bytes.next_multiple_of(ALIGNMENT)) as u64;
        let allocation = Allocation {
            mapping,
            mapping_bytes: body + PAGE,
            bytes,
            is_device,
            file,
        };
        if is_device {
            state.device_bytes += bytes;
        }
        state.allocations.insert(addr, allocation);
        Ok(addr)
    }

    fn free_at(&self, addr: u64) {
        let mut state = self.state.lock();
        self.run_until(&mut state, u64::MAX);
        let allocation = state.allocations.remove(&addr);
        let allocation = allocation.expect("what is freed was allocated and is freed once");
        if allocation.is_device {
            state.device_bytes -= allocation.bytes;
        }
        // SAFETY: the mapping is the one made for it, and the stream has run dry.
        unsafe { libc::munmap(allocation.mapping as *mut c_void, allocation.mapping_bytes) };
    }

    /// Runs what is queued, up to and with this event.
    fn run_until(&self, state: &mut State, event: u64) {
        while state.passed < event
            && let Some(command) = state.queue.pop_front()
        {
            self.run(state, command);
        }
    }

    fn run(&self, state: &mut State, command: Command) {
        match command {
            Command::Event(event) => state.passed = event,
            Command::Copy { to, from, bytes } if state.fault.is_none() => {
                // SAFETY: the caller of `copy` says that both ranges are there; they may be one.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
            }
            Command::Launch {
                kernel,
                grid,
                shared_bytes,
                args,
            } if state.fault.is_none() => {
                state.log.push(kernel);
                // Ascending and descending order follow no period: a kernel that relies on one is found out.
                let descending = state.launches.count_ones() % 2 == 1;
                state.launches += 1;
                let mut error = [0; ERROR_BYTES];
                // Kernels take their argument as aligned as a struct of pointers.
                let args: Vec<u64> = args
                    .chunks_exact(8)
                    .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
                    .collect();
                // SAFETY: the caller of `launch` vouches for the arguments.
                unsafe {
                    pd_emulation_launch(
                        self.kernels[&kernel].0,
                        grid.as_ptr(),
                        kernel.threads(),
                        shared_bytes,
                        args.as_ptr().cast(),
                        descending,
                        error.as_mut_ptr(),
                        error.len(),
                    );
                }
                // SAFETY: the callee ends what it writes with NUL.
                let error = unsafe { CStr::from_ptr(error.as_ptr()) };
                if !error.is_empty() {
                    state.fault = Some(DriverError {
                        call: kernel.name(),
                        reason: error.to_string_lossy().into_owned(),
                    });
                }
            }
            // SAFETY: the caller of `gemm` says that the matrices are there.
            Command::Gemm(gemm) if state.fault.is_none() => unsafe { multiply(&gemm) },
            // After a fault nothing runs.
            Command::Copy { .. } | Command::Launch { .. } | Command::Gemm(_) => {}
        }
    }

    /// Whether the event has passed, or the fault that came before.
    fn passed(state: &State, event: &Event) -> Result<bool, DriverError> {
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(state.passed >= event.0),
        }
    }
}

/// As the kernels have it.
fn constant(name: &str) -> Option<usize> {
    let name = CString::new(name).expect("a name holds no NUL");
    let mut value = 0;
    // SAFETY: the name ends with NUL, and the place is ours.
    unsafe { pd_emulation_constant(name.as_ptr(), &raw mut value) }.then_some(value)
}

// === impl State ===

impl State {
    /// Refuses the call whose turn it is.
    fn admit(&mut self, call: &'static str) -> Result<(), DriverError> {
        let Some(refusal) = self.refusal.as_mut().filter(|refusal| refusal.call == call) else {
            return Ok(());
        };
        if refusal.after > 0 {
            refusal.after -= 1;
            return Ok(());
        }
        self.refusal = None;
        Err(DriverError {
            call,
            reason: "CUDA_ERROR_UNKNOWN (as a test wants it)".to_owned(),
        })
    }
}

fn memfd(bytes: usize) -> std::io::Result<OwnedFd> {
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe { libc::memfd_create(c"pd-emulated".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just opened, with no other owner.
    let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes as u64)?;
    Ok(file.into())
}

fn map(file: &OwnedFd, bytes: usize, protection: c_int) -> std::io::Result<u64> {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let mapping = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    if mapping == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    Ok(mapping as u64)
}

/// What an emulated handle says: whose file is to be mapped, and where the memory begins in it.
#[derive(Clone, Copy, Debug)]
struct Handle {
    process: u32,
    file: u32,
    offset: u64,
}

// === impl Handle ===

impl Handle {
    fn encode(self) -> IpcHandle {
        let mut bytes = [0; 64];
        bytes[..4].copy_from_slice(&self.process.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.file.to_le_bytes());
        IpcHandle {
            bytes,
            offset: self.offset,
        }
    }

    fn decode(handle: &IpcHandle) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes(handle.bytes[at..at + 4].try_into().expect("four bytes"))
        };
        Self {
            process: word(0),
            file: word(4),
            offset: handle.offset,
        }
    }
}

// SAFETY: allocations are mappings of their own, zeroed by the kernel, aligned to 16 bytes and unmapped
// by `free` only; `passed` advances in queue order.
unsafe impl Driver for EmulatedDriver {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn free_bytes(&self) -> Result<usize, DriverError> {
        Ok(self.device.memory_bytes - self.device_bytes())
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DriverError> {
        self.alloc_in(bytes, true)
    }

    unsafe fn free(&self, addr: u64) {
        self.free_at(addr);
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>, DriverError> {
        let addr = self.alloc_in(bytes, false)?;
        Ok(NonNull::new(addr as *mut u8).expect("a mapping that succeeded is not at null"))
    }

    unsafe fn free_pinned(&self, place: NonNull<u8>) {
        self.free_at(place.as_ptr() as u64);
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        let mut state = self.state.lock();
        state.admit("cuMemcpyAsync")?;
        state.queue.push_back(Command::Copy { to, from, bytes });
        Ok(())
    }

    fn has_gemm(&self) -> bool {
        true
    }

    unsafe fn enqueue(&self, work: &Work<'_>) -> Result<(), DriverError> {
        self.state.lock().queue.push_back(Command::of(work));
        Ok(())
    }

    unsafe fn capture(&self, works: &[Work<'_>]) -> Result<Graph, DriverError> {
        let addr = self.alloc_in(GRAPH_BYTES, true)?;
        let works = works.iter().map(Command::of).collect();
        self.state.lock().graphs.insert(addr, works);
        Ok(Graph(addr))
    }

    unsafe fn replay(&self, graph: &Graph) -> Result<(), DriverError> {
        let mut state = self.state.lock();
        let works = state.graphs[&graph.0].clone();
        state.queue.extend(works);
        state.replays += 1;
        Ok(())
    }

    fn destroy_graph(&self, graph: Graph) {
        self.state.lock().graphs.remove(&graph.0);
        self.free_at(graph.0);
    }

    unsafe fn side_copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: the caller's; another stream may run at once.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn sync_side_stream(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn ipc_handle(&self, addr: u64) -> Result<IpcHandle, DriverError> {
        let state = self.state.lock();
        let allocation = state.allocations.get(&addr).filter(|a| a.is_device);
        let allocation = allocation.ok_or_else(|| DriverError {
            call: "cuIpcGetMemHandle",
            reason: "CUDA_ERROR_INVALID_VALUE (no allocation begins there)".to_owned(),
        })?;
        let handle = Handle {
            process: std::process::id(),
            file: allocation.file.as_raw_fd().cast_unsigned(),
            offset: addr - allocation.mapping,
        };
        Ok(handle.encode())
    }

    fn open_ipc(&self, handle: &IpcHandle, bytes: usize) -> Result<u64, DriverError> {
        let failed = |reason: std::io::Error| DriverError {
            call: "cuIpcOpenMemHandle",
            reason: reason.to_string(),
        };
        let Handle { process, file, .. } = Handle::decode(handle);
        let path = format!("/proc/{process}/fd/{file}");
        let file = std::fs::File::open(path).map_err(failed)?;
        let file_bytes = file.metadata().map_err(failed)?.len();
        let mapping_bytes = usize::try_from(file_bytes).unwrap_or(usize::MAX);
        let offset = handle.offset_in(mapping_bytes.saturating_sub(PAGE), bytes)?;
        let file = file.into();
        let mapping = map(&file, mapping_bytes, libc::PROT_READ).map_err(failed)?;
        let addr = mapping + offset;
        let allocation = Allocation {
            mapping,
            mapping_bytes,
            bytes,
            is_device: false,
            file,
        };
        self.state.lock().allocations.insert(addr, allocation);
        Ok(addr)
    }

    unsafe fn close_ipc(&self, addr: u64) {
        self.free_at(addr);
    }

    fn dma_buf(&self, _addr: u64, _bytes: usize) -> Result<OwnedFd, DriverError> {
        Err(DriverError {
            call: "cuMemGetHandleForAddressRange",
            reason: "CUDA_ERROR_NOT_SUPPORTED (there is no bus to a NIC here)".to_owned(),
        })
    }

    fn flush_remote_writes(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn record(&self) -> Result<Event, DriverError> {
        let mut state = self.state.lock();
        state.admit("cuEventRecord")?;
        state.next_event += 1;
        let event = state.next_event;
        state.queue.push_back(Command::Event(event));
        Ok(Event(event))
    }

    fn is_done(&self, event: &Event) -> Result<bool, DriverError> {
        let mut state = self.state.lock();
        let done = Self::passed(&state, event);
        // One step, so that who asks again and again gets there.
        if let Some(command) = state.queue.pop_front() {
            self.run(&mut state, command);
        }
        done
    }

    fn wait(&self, event: &Event) -> Result<(), DriverError> {
        let mut state = self.state.lock();
        state.admit("cuEventSynchronize")?;
        self.run_until(&mut state, event.0);
        Self::passed(&state, event).map(|passed| assert!(passed, "an event is in the queue"))
    }

    fn release(&self, _event: Event) {}
}

impl Drop for EmulatedDriver {
    fn drop(&mut self) {
        for allocation in self.state.get_mut().allocations.values() {
            // SAFETY: nothing can reach it any more.
            unsafe { libc::munmap(allocation.mapping as *mut c_void, allocation.mapping_bytes) };
        }
    }
}
