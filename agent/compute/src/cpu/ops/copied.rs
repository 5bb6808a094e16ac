//! Bytes of a pool that go to a host buffer or come from it, for the ops that copy whole items.

use crate::cpu::memory::{CpuBuffer, Dst, Src};
use crate::ops::CopyDirection;
use std::ops::Range;

pub(super) enum Copied {
    ToHost { pool: Dst<u8>, host: Dst<u8> },
    ToPool { pool: Dst<u8>, host: Src<u8> },
}

// === impl Copied ===

impl Copied {
    pub(super) fn new(pool: &CpuBuffer, host: &CpuBuffer, direction: CopyDirection) -> Self {
        match direction {
            CopyDirection::PoolToHost => Self::ToHost {
                // Not as a source, which is read as a whole: a transfer may write other items meanwhile.
                pool: pool.dst_bytes(),
                host: host.dst_bytes(),
            },
            CopyDirection::HostToPool => Self::ToPool {
                pool: pool.dst_bytes(),
                host: host.src_bytes(),
            },
        }
    }

    /// Copies the bytes in one range of the pool from or to those in a range of the host buffer, as long.
    ///
    /// # Safety
    /// Called on the queue, and no other task has a part of the range that is written.
    pub(super) unsafe fn copy(&self, in_pool: Range<usize>, in_host: Range<usize>) {
        match self {
            // SAFETY: promised by the caller.
            Self::ToHost { pool, host } => unsafe {
                host.slice_mut(in_host).copy_from_slice(pool.slice(in_pool));
            },
            // SAFETY: promised by the caller.
            Self::ToPool { pool, host } => unsafe {
                pool.slice_mut(in_pool)
                    .copy_from_slice(&host.slice()[in_host]);
            },
        }
    }
}

/// # Panics
/// When an item of the pool is named twice and would be written, by two threads at once.
pub(super) fn expect_distinct(what: &str, items: &[u32], direction: CopyDirection) {
    let mut items = items.to_vec();
    items.sort_unstable();
    let twice = items.array_windows().find(|[one, other]| one == other);
    match (direction, twice) {
        (CopyDirection::HostToPool, Some([item, _])) => {
            panic!("{what} {item} is written twice by a copy")
        }
        (CopyDirection::HostToPool, None) | (CopyDirection::PoolToHost, _) => {}
    }
}
