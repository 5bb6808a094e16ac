//! Pinned host memory for copies to and from the device, in blocks that go back when they are dropped: one that
//! the stream still uses is lent again once the stream is past it. One for which that moment is unknown,
//! because a call was refused midway, is freed, which waits for the stream.

use super::driver::{Driver, DriverError};
use super::stream_event::StreamEvent;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

/// Smallest and largest block; more is copied in parts.
const BLOCK_BYTES_MIN: usize = 4 << 10;
pub(super) const BLOCK_BYTES_MAX: usize = 8 << 20;
const CLASSES: usize = (BLOCK_BYTES_MAX / BLOCK_BYTES_MIN).ilog2() as usize + 1;
/// Blocks per size: where there are so many, one that the stream still uses is waited for. While all of them
/// are lent, which is up to who holds reads, there may be more; such are freed when they come back.
const BLOCKS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct PinnedPool {
    driver: Arc<dyn Driver>,
    classes: Mutex<[Class; CLASSES]>,
}

#[derive(Debug, Default)]
struct Class {
    /// In the order in which they came back.
    free: VecDeque<Free>,
    /// All, lent ones among them.
    count: usize,
}

#[derive(Debug)]
struct Free {
    place: NonNull<u8>,
    used_until: Option<Arc<StreamEvent>>,
}

/// A block, lent to its holder.
#[derive(Debug)]
pub(super) struct Block {
    pool: Arc<PinnedPool>,
    place: NonNull<u8>,
    class: usize,
    /// The stream may use the block, and no point says how long.
    is_unmarked: bool,
    /// Until it is passed, the stream uses the block.
    used_until: Option<Arc<StreamEvent>>,
}

// SAFETY: the memory is the pool's, which never reads it.
unsafe impl Send for Free {}
// SAFETY: the memory belongs to the block's holder.
unsafe impl Send for Block {}

// === impl PinnedPool ===

impl PinnedPool {
    pub(super) fn new(driver: &Arc<dyn Driver>) -> Arc<Self> {
        Arc::new(Self {
            driver: Arc::clone(driver),
            classes: Mutex::default(),
        })
    }

    /// A block of at least `bytes`, which is at most [`BLOCK_BYTES_MAX`].
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Result<Block, DriverError> {
        let blocks = bytes.div_ceil(BLOCK_BYTES_MIN).max(1).next_power_of_two();
        let class = blocks.ilog2() as usize;
        Ok(Block {
            place: self.place(class)?,
            pool: Arc::clone(self),
            class,
            is_unmarked: false,
            used_until: None,
        })
    }

    fn place(&self, class: usize) -> Result<NonNull<u8>, DriverError> {
        let mut classes = self.classes.lock();
        let Class { free, count } = &mut classes[class];
        if let Some(oldest) = free.front() {
            let is_past = match &oldest.used_until {
                None => true,
                Some(point) if *count >= BLOCKS_MAX => point.wait().map(|()| true)?,
                Some(point) => point.is_done()?,
            };
            if is_past && let Some(oldest) = free.pop_front() {
                return Ok(oldest.place);
            }
        }
        let place = self.driver.alloc_pinned(BLOCK_BYTES_MIN << class)?;
        *count += 1;
        Ok(place)
    }
}

impl Drop for PinnedPool {
    fn drop(&mut self) {
        for class in self.classes.get_mut() {
            for Free { place, .. } in class.free.drain(..) {
                // SAFETY: from `alloc_pinned`; freeing waits for the stream.
                unsafe { self.driver.free_pinned(place) };
            }
        }
    }
}

// === impl Block ===

impl Block {
    /// Of a block that was just taken.
    ///
    /// # Panics
    /// If the stream was given it to use, or it has fewer bytes.
    pub(super) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(
            !self.is_unmarked && self.used_until.is_none(),
            "the stream uses {self:?}"
        );
        self.assert_holds(len);
        // SAFETY: the block has so many bytes, and neither the stream nor anybody else uses them.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), len) }
    }

    /// Enqueues a copy of the first `len` bytes to the device.
    ///
    /// # Safety
    /// The range there is allocated, and stays so until the stream is past it.
    pub(super) unsafe fn copy_to(&mut self, to: u64, len: usize) -> Result<(), DriverError> {
        self.assert_holds(len);
        self.is_unmarked = true;
        // SAFETY: the caller's; the block stays until the stream is past it.
        unsafe { self.pool.driver.copy(to, self.addr(), len) }
    }

    /// Enqueues a copy of `len` bytes from the device.
    ///
    /// # Safety
    /// As for [`Self::copy_to`].
    pub(super) unsafe fn copy_from(&mut self, from: u64, len: usize) -> Result<(), DriverError> {
        self.assert_holds(len);
        self.is_unmarked = true;
        // SAFETY: the caller's; the block stays until the stream is past it.
        unsafe { self.pool.driver.copy(self.addr(), from, len) }
    }

    /// `point` was recorded behind every copy of the block.
    pub(super) fn use_until(&mut self, point: &Arc<StreamEvent>) {
        self.is_unmarked = false;
        self.used_until = Some(Arc::clone(point));
    }

    /// What the stream has put here.
    ///
    /// # Safety
    /// The stream has passed the point until which it used the block.
    pub(super) unsafe fn read(&mut self, out: &mut [u8]) {
        self.used_until = None;
        out.copy_from_slice(self.bytes_mut(out.len()));
    }

    fn addr(&self) -> u64 {
        self.place.as_ptr() as u64
    }

    fn assert_holds(&self, len: usize) {
        let own = BLOCK_BYTES_MIN << self.class;
        assert!(len <= own, "{len} bytes of a block of {own}");
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut classes = self.pool.classes.lock();
        let Class { free, count } = &mut classes[self.class];
        if !self.is_unmarked && *count <= BLOCKS_MAX {
            free.push_back(Free {
                place: self.place,
                used_until: self.used_until.take(),
            });
            return;
        }
        *count -= 1;
        drop(classes);
        // SAFETY: from `alloc_pinned`; freeing waits for the stream.
        unsafe { self.pool.driver.free_pinned(self.place) };
    }
}
