//! The first fault of the stream: a call that the driver refused, or a wrong index that a kernel met
//! and left word of in pinned memory.

use super::driver::{Driver, DriverError};
use super::kernels::Fault;
use crate::error::ComputeError;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(super) struct FaultWord {
    driver: Arc<dyn Driver>,
    /// Threads of kernels write it; each field is one of theirs.
    word: NonNull<Fault>,
    first: OnceLock<ComputeError>,
}

// SAFETY: the word is read by volatile loads only, and freed with the last handle.
unsafe impl Send for FaultWord {}
// SAFETY: as above.
unsafe impl Sync for FaultWord {}

// === impl FaultWord ===

impl FaultWord {
    pub(super) fn new(driver: &Arc<dyn Driver>) -> Result<Self, ComputeError> {
        let word =
            driver
                .alloc_pinned(size_of::<Fault>())
                .map_err(|e| ComputeError::OutOfMemory {
                    call: e.call,
                    what: "the fault word".to_owned(),
                    bytes: size_of::<Fault>(),
                    reason: e.reason,
                })?;
        Ok(Self {
            driver: Arc::clone(driver),
            word: word.cast(),
            first: OnceLock::new(),
        })
    }

    /// For kernels.
    pub(super) fn addr(&self) -> u64 {
        self.word.as_ptr() as u64
    }

    /// Keeps the first, which it returns: what fails after it does so because of it.
    pub(super) fn keep(&self, op: &'static str, error: DriverError) -> ComputeError {
        let message = error.to_string();
        if let Err(first) = self.check() {
            tracing::debug!(op, message, "stream had faulted before");
            return first;
        }
        tracing::error!(op, message, "compute stream faulted");
        self.first
            .get_or_init(|| ComputeError::DeviceFault { op, message })
            .clone()
    }

    /// # Errors
    /// The first fault, also one that a kernel has left since.
    pub(super) fn check(&self) -> Result<(), ComputeError> {
        // SAFETY: the word lives as long as `self`; kernels write it from the device, so the load is volatile.
        let fault = unsafe { self.word.as_ptr().read_volatile() };
        if fault.op != 0 {
            self.first.get_or_init(|| describe(fault));
        }
        self.first.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }
}

impl Drop for FaultWord {
    fn drop(&mut self) {
        // SAFETY: it is from `alloc_pinned`; the backend that enqueues kernels is gone.
        unsafe { self.driver.free_pinned(self.word.cast()) };
    }
}

fn describe(fault: Fault) -> ComputeError {
    let op = match fault.op {
        1 => "embed",
        2 => "qkv_prep",
        3 => "attn_paged",
        4 => "gather_rows",
        5 => "copy_pages",
        6 => "moe_experts",
        7 => "causal_conv",
        8 => "gdn_scan",
        9 => "copy_states",
        10 => "mla_prep",
        _ => "unknown",
    };
    let Fault { value, limit, .. } = fault;
    let message = match fault.what {
        1 => format!("token id {value} is beyond the vocabulary of {limit}"),
        2 => format!("page {value} is beyond the pool of {limit}"),
        3 => format!("row {value} is beyond the {limit} of src"),
        4 => format!("slot {value} is beyond the pool of {limit}"),
        5 => format!("expert {value} is beyond the {limit}"),
        6 => format!("state slot {value} is beyond the {limit}"),
        what => format!("index {value} of kind {what} is beyond {limit}"),
    };
    ComputeError::DeviceFault { op, message }
}
