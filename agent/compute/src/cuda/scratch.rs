//! Device memory that ops of one kind use for the time they run: grown when a larger one is needed,
//! kept until the end. Ops run one after another, so one is enough for all of them.

use super::driver::Driver;
use super::memory::{CudaBuffer, MemoryKind};
use crate::buffer::DeviceBuffer;
use crate::dtype::DType;
use crate::error::ComputeError;
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Scratch {
    name: &'static str,
    memory: Mutex<Option<CudaBuffer>>,
}

// === impl Scratch ===

impl Scratch {
    pub(super) const fn new(name: &'static str) -> Self {
        Self {
            name,
            memory: Mutex::new(None),
        }
    }

    pub(super) fn holds(&self, words: usize) -> bool {
        let memory = self.memory.lock();
        memory.as_ref().is_some_and(|have| have.len() >= words)
    }

    /// Address of at least `words` words of 32 bits. What lies there is what the last op left, zero at
    /// first.
    pub(super) fn reserve(
        &self,
        driver: &Arc<dyn Driver>,
        words: usize,
    ) -> Result<u64, ComputeError> {
        let mut memory = self.memory.lock();
        if memory.as_ref().is_none_or(|have| have.len() < words) {
            // The old one goes first, so that both never stand side by side.
            memory.take();
            // A little more, so that growing by and by costs few allocations.
            let words = words.next_multiple_of((words.next_power_of_two() / 8).max(1));
            let larger =
                CudaBuffer::alloc(driver, MemoryKind::Device, self.name, DType::U32, words);
            *memory = Some(larger?);
        }
        Ok(memory.as_ref().expect("it was just made").addr())
    }
}
