//! How many values lay beyond the range of a KV pool of E4M3: kernels count them in pinned memory.

use super::driver::Driver;
use crate::error::ComputeError;
use std::ptr::NonNull;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Saturations {
    driver: Arc<dyn Driver>,
    /// Threads of kernels add to it, atomically among each other.
    count: NonNull<u64>,
}

// SAFETY: the count is read by volatile loads only, and freed with the last handle.
unsafe impl Send for Saturations {}
// SAFETY: as above.
unsafe impl Sync for Saturations {}

// === impl Saturations ===

impl Saturations {
    pub(super) fn new(driver: &Arc<dyn Driver>) -> Result<Self, ComputeError> {
        let bytes = size_of::<u64>();
        let count = driver.alloc_pinned(bytes);
        let count = count.map_err(|e| ComputeError::OutOfMemory {
            call: e.call,
            what: "the count of saturated values".to_owned(),
            bytes,
            reason: e.reason,
        })?;
        Ok(Self {
            driver: Arc::clone(driver),
            count: count.cast(),
        })
    }

    /// For kernels.
    pub(super) fn addr(&self) -> u64 {
        self.count.as_ptr() as u64
    }

    pub(super) fn count(&self) -> u64 {
        // SAFETY: the count lives as long as `self`; kernels add to it from the device, so the load is volatile.
        unsafe { self.count.as_ptr().read_volatile() }
    }
}

impl Drop for Saturations {
    fn drop(&mut self) {
        // SAFETY: it is from `alloc_pinned`; the backend that enqueues kernels is gone.
        unsafe { self.driver.free_pinned(self.count.cast()) };
    }
}
