//! The lease table: one word per room in transfer. A room's pages are its own while the word has
//! the value that the room was given.

use crate::memory::{Region, RegionError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Rooms that can be pulled at once: beyond any decode batch, 128 KiB of words.
pub(crate) const LEASES: usize = 16_384;
pub(crate) const TABLE_BYTES: usize = LEASES * 8;

/// Prefill's table.
pub(crate) struct LeaseTable {
    region: Region,
    free: Mutex<Vec<u32>>,
}

/// One room's word; moves on when dropped.
pub(crate) struct Lease {
    table: Arc<LeaseTable>,
    pub(crate) idx: u32,
    pub(crate) value: u64,
}

impl LeaseTable {
    pub(crate) fn allocate() -> Result<Self, RegionError> {
        let count = u32::try_from(LEASES).expect("LEASES fits u32");
        Ok(Self {
            region: Region::allocate("pd-leases", TABLE_BYTES)?,
            free: Mutex::new((0..count).rev().collect()),
        })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// A lease, or `None` when all are in use.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Lease> {
        let idx = self.free.lock().pop()?;
        let word = self.region.word(idx as usize);
        let value = word.expect("an index of the table").load(Ordering::Relaxed);
        Some(Lease {
            table: Arc::clone(self),
            idx,
            value,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let word = self.table.region.word(self.idx as usize);
        let word = word.expect("an index of the table");
        word.store(self.value.wrapping_add(1), Ordering::Relaxed);
        // A reader of a byte written after this fence also sees the advanced word.
        fence(Ordering::SeqCst);
        self.table.free.lock().push(self.idx);
    }
}

/// Decode: whether the lease still held after everything read before this call.
pub(crate) fn still_holds(table: &Region, idx: u32, value: u64) -> bool {
    fence(Ordering::SeqCst);
    let word = table.word(idx as usize);
    word.is_ok_and(|word| word.load(Ordering::SeqCst) == value)
}

#[cfg(test)]
mod tests;
