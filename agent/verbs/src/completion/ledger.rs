//! Accounts of the work queues that share a completion queue: which of them a completion belongs
//! to, and how many entries they may need in total.

use crate::completion::{Completion, CompletionQueue, Direction, WorkError};
use crate::ffi;
use crate::status::WcStatus;
use crate::work_queue::WorkQueue;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// A completion queue lacks capacity for another queue pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a completion queue of {device} has {depth} entries, of which {reserved} are reserved; a work \
     queue of {wanted} does not fit"
)]
pub struct DepthError {
    pub device: String,
    pub depth: u32,
    pub reserved: u32,
    pub wanted: u32,
}

/// The work queues that complete here.
#[derive(Default)]
pub(super) struct Ledger {
    next: u32,
    queues: HashMap<u32, Entry>,
    /// Entries of the completion queue that work queues may need.
    reserved: u32,
    /// Those whose work queue is gone; its completions may be left.
    leaving: u32,
}

struct Entry {
    direction: Direction,
    queue: Arc<Mutex<WorkQueue>>,
}

/// A work queue's reservation in a completion queue; released when dropped.
pub(crate) struct Account {
    completions: CompletionQueue,
    number: u32,
    queue: Arc<Mutex<WorkQueue>>,
}

// === impl Ledger ===

impl Ledger {
    fn enter(&mut self, entry: Entry) -> u32 {
        while self.queues.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.queues.insert(number, entry);
        number
    }

    fn leave(&mut self, number: u32) {
        if let Some(entry) = self.queues.remove(&number) {
            self.leaving += entry.queue.lock().capacity();
        }
    }

    /// The completion queue was empty, so no completion of a destroyed queue pair is left in it.
    pub(super) fn forget_left(&mut self) {
        self.reserved -= std::mem::take(&mut self.leaving);
    }

    /// Accounts for a completion; `None` if its queue pair is gone.
    pub(super) fn settle(&self, wc: &ffi::Wc, device: &str) -> Option<Completion> {
        let (number, position) = split_wr_id(wc.wr_id);
        let entry = self.queues.get(&number)?;
        let tag = entry.queue.lock().retire(position)?;
        let qp_num = wc.qp_num;
        // For a failed request only these are set: its id, status, vendor code and queue pair.
        if wc.status != ffi::IBV_WC_SUCCESS {
            return Some(Completion::Failed(WorkError {
                device: device.to_owned(),
                qp_num,
                direction: entry.direction,
                tag,
                status: WcStatus(wc.status),
                vendor_code: wc.vendor_err,
            }));
        }
        Some(match wc.opcode {
            ffi::IBV_WC_RDMA_WRITE => Completion::Written { qp_num, tag },
            ffi::IBV_WC_RECV_RDMA_WITH_IMM => Completion::Immediate {
                qp_num,
                immediate: u32::from_be(wc.imm_data),
                bytes: wc.byte_len,
            },
            opcode => Completion::Stray { qp_num, opcode },
        })
    }
}

// === impl Account ===

impl Account {
    /// Reserves `depth` entries for a work queue.
    pub(crate) fn open(
        completions: &CompletionQueue,
        direction: Direction,
        depth: u32,
    ) -> Result<Self, DepthError> {
        let mut ledger = completions.inner.ledger.lock();
        let reserved = ledger.reserved;
        let total = reserved.saturating_add(depth);
        if total > completions.inner.depth {
            return Err(DepthError {
                device: completions.inner.device.name().to_owned(),
                depth: completions.inner.depth,
                reserved,
                wanted: depth,
            });
        }
        ledger.reserved = total;
        let queue = Arc::new(Mutex::new(WorkQueue::new(depth)));
        let number = ledger.enter(Entry {
            direction,
            queue: Arc::clone(&queue),
        });
        Ok(Self {
            completions: completions.clone(),
            number,
            queue,
        })
    }

    pub(crate) fn completions(&self) -> &CompletionQueue {
        &self.completions
    }

    pub(crate) fn queue(&self) -> &Mutex<WorkQueue> {
        &self.queue
    }

    /// The `wr_id` of the request at `position`.
    pub(crate) fn wr_id(&self, position: u32) -> u64 {
        u64::from(self.number) << 32 | u64::from(position)
    }
}

fn split_wr_id(wr_id: u64) -> (u32, u32) {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits");
    (half(wr_id >> 32), half(wr_id))
}

impl Drop for Account {
    fn drop(&mut self) {
        self.completions.inner.ledger.lock().leave(self.number);
    }
}
