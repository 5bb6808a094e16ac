//! Pinned host memory for copies to and from the device, taken and given back in blocks. A block that
//! the stream still uses is given back with an event and lent again once that has passed.

use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use super::driver::{Driver, DriverError, Event};

/// Smallest and largest block; more is copied in parts.
const BLOCK_BYTES_MIN: usize = 4 << 10;
pub(super) const BLOCK_BYTES_MAX: usize = 8 << 20;
const CLASSES: usize = (BLOCK_BYTES_MAX / BLOCK_BYTES_MIN).ilog2() as usize + 1;
/// Blocks per size; beyond it the oldest is waited for.
const BLOCKS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct PinnedPool {
    driver: Arc<dyn Driver>,
    classes: Mutex<[Class; CLASSES]>,
}

#[derive(Debug, Default)]
struct Class {
    /// In the order in which they were given back.
    free: std::collections::VecDeque<Block>,
    /// All, lent ones among them.
    count: usize,
}

/// A block, lent to whoever holds it.
#[derive(Debug)]
pub(super) struct Block {
    place: NonNull<u8>,
    class: usize,
    /// Until it has passed, the stream uses the block.
    used_until: Option<Event>,
}

// SAFETY: the memory belongs to whoever holds the block.
unsafe impl Send for Block {}

// === impl PinnedPool ===

impl PinnedPool {
    pub(super) fn new(driver: &Arc<dyn Driver>) -> Self {
        Self {
            driver: Arc::clone(driver),
            classes: Mutex::default(),
        }
    }

    /// A block of at least `bytes`, which is at most [`BLOCK_BYTES_MAX`].
    pub(super) fn take(&self, bytes: usize) -> Result<Block, DriverError> {
        let blocks = bytes.div_ceil(BLOCK_BYTES_MIN).max(1).next_power_of_two();
        let class = blocks.ilog2() as usize;
        let mut classes = self.classes.lock();
        let Class { free, count } = &mut classes[class];
        let is_full = *count >= BLOCKS_MAX;
        if let Some(oldest) = free.front() {
            let passed = match &oldest.used_until {
                None => true,
                Some(event) if is_full => self.driver.wait(event).map(|()| true)?,
                Some(event) => self.driver.is_done(event)?,
            };
            if passed {
                let mut block = free.pop_front().expect("it was just there");
                if let Some(event) = block.used_until.take() {
                    self.driver.release(event);
                }
                return Ok(block);
            }
        }
        let place = self.driver.alloc_pinned(BLOCK_BYTES_MIN << class)?;
        *count += 1;
        Ok(Block {
            place,
            class,
            used_until: None,
        })
    }

    /// Gives a block back that the stream uses until `event`.
    pub(super) fn give_back(&self, mut block: Block, event: Option<Event>) {
        block.used_until = event;
        let mut classes = self.classes.lock();
        classes[block.class].free.push_back(block);
    }
}

impl Drop for PinnedPool {
    fn drop(&mut self) {
        for class in self.classes.get_mut() {
            for block in class.free.drain(..) {
                if let Some(event) = block.used_until {
                    self.driver.release(event);
                }
                // SAFETY: from `alloc_pinned`; freeing waits for the stream.
                unsafe { self.driver.free_pinned(block.place) };
            }
        }
    }
}

// === impl Block ===

impl Block {
    pub(super) fn addr(&self) -> u64 {
        self.place.as_ptr() as u64
    }

    /// # Safety
    /// The stream does not use the block meanwhile, and `len` is at most what was asked for.
    pub(super) unsafe fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the block has so many bytes, and nobody else holds it.
        unsafe { std::slice::from_raw_parts(self.place.as_ptr(), len) }
    }

    /// # Safety
    /// As for [`Self::bytes`].
    pub(super) unsafe fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: the block has so many bytes, and nobody else holds it.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), len) }
    }
}
