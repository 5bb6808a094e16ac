//! Completion queues: results of requests, polled in batches or awaited by a file descriptor.
//!
//! To wait: `arm`, `poll` until the queue is empty, wait until its file is readable, `take_events`,
//! repeat. Completions between `arm` and the last `poll` make the file readable, so none is missed.
//!
//! A completion names its request by a `wr_id`: the work queue's number in the upper half, its
//! position in the lower half. A number repeats only after 2³² others, so completions of a
//! destroyed queue pair are not taken for its successor's.

mod channel;
mod ledger;

pub(crate) use ledger::Account;
pub use ledger::DepthError;

use crate::device::Device;
use crate::error::CallError;
use crate::ffi;
use crate::status::WcStatus;
use channel::Channel;
use ledger::Ledger;
use parking_lot::Mutex;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Completions taken from the device in one call.
const BATCH: usize = 32;

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// This write, and all before it on its queue pair, are in the peer's memory.
    Written { qp_num: u32, tag: u64 },
    /// A peer's write with an immediate, and all its earlier writes on that queue pair, are in
    /// local memory.
    Immediate {
        qp_num: u32,
        immediate: u32,
        bytes: u32,
    },
    /// A request failed, and with it its queue pair.
    Failed(WorkError),
    /// A peer used a receive for something other than an immediate.
    Stray { qp_num: u32, opcode: u32 },
}

/// Which of a queue pair's queues held a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Send,
    Receive,
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{status} for a {what} on queue pair {qp_num} of {device} (vendor's code {vendor_code:#x}): {}",
    status.advice(),
    what = match direction { Direction::Send => "write", Direction::Receive => "receive" }
)]
pub struct WorkError {
    pub device: String,
    pub qp_num: u32,
    pub direction: Direction,
    /// The write's; 0 for a receive.
    pub tag: u64,
    pub status: WcStatus,
    pub vendor_code: u32,
}

/// A queue of completions. Cheap to clone; freed with the last clone and the queue pairs on it.
#[derive(Clone)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
}

struct Inner {
    raw: NonNull<ffi::Cq>,
    channel: Option<Channel>,
    device: Device,
    depth: u32,
    ledger: Mutex<Ledger>,
}

// SAFETY: libibverbs allows any thread to use a completion queue.
unsafe impl Send for Inner {}
// SAFETY: as above, at the same time: the provider locks its ring.
unsafe impl Sync for Inner {}

// === impl CompletionQueue ===

impl CompletionQueue {
    /// A queue of at least `depth` entries, without events.
    ///
    /// # Errors
    /// The device has no completion queue left, or does not respond.
    pub fn new(device: &Device, depth: u32) -> Result<Self, CallError> {
        Self::build(device, depth, None)
    }

    /// As [`CompletionQueue::new`], with a file that becomes readable on events.
    ///
    /// # Errors
    /// As for `new`.
    pub fn with_events(device: &Device, depth: u32) -> Result<Self, CallError> {
        Self::build(device, depth, Some(Channel::new(device)?))
    }

    fn build(device: &Device, depth: u32, channel: Option<Channel>) -> Result<Self, CallError> {
        let object = || format!("{} for {depth} entries", device.name());
        let wanted = i32::try_from(depth)
            .map_err(|_| CallError::new("ibv_create_cq", object(), libc::EINVAL))?;
        let events = channel.as_ref().map_or(std::ptr::null_mut(), Channel::raw);
        let context = std::ptr::null_mut();
        // SAFETY: the context is open, and the channel, if any, too; it outlives the queue.
        let raw = unsafe { (device.api().ibv_create_cq)(device.raw(), wanted, context, events, 0) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("ibv_create_cq", object()))?;
        // SAFETY: the library's structure lives until the queue is destroyed.
        let depth = u32::try_from(unsafe { raw.as_ref() }.cqe).unwrap_or(depth);
        Ok(Self {
            inner: Arc::new(Inner {
                raw,
                channel,
                device: device.clone(),
                depth,
                ledger: Mutex::default(),
            }),
        })
    }

    pub(crate) fn raw(&self) -> *mut ffi::Cq {
        self.inner.raw.as_ptr()
    }

    /// Its number of entries.
    pub fn depth(&self) -> u32 {
        self.inner.depth
    }

    /// Appends at most `max` completions; fewer mean that the queue is empty.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn poll(&self, into: &mut Vec<Completion>, max: usize) -> Result<(), CallError> {
        let mut ledger = self.inner.ledger.lock();
        let mut left = max;
        while left > 0 {
            let batch = left.min(BATCH);
            let polled = self.poll_batch(&ledger, into, batch)?;
            left -= polled.known;
            if polled.taken < batch {
                ledger.forget_left();
                break;
            }
        }
        Ok(())
    }

    /// One poll of the device.
    fn poll_batch(
        &self,
        ledger: &Ledger,
        into: &mut Vec<Completion>,
        batch: usize,
    ) -> Result<Polled, CallError> {
        let mut polled = [const { MaybeUninit::<ffi::Wc>::uninit() }; BATCH];
        let wanted = i32::try_from(batch).expect("a batch is small");
        // SAFETY: the queue is alive, and with it the context behind its first field.
        let poll_cq = unsafe { (*self.inner.device.raw()).ops.poll_cq };
        // SAFETY: the provider's function of this queue's device; it writes at most `wanted` entries,
        // and there is room for a whole batch.
        let count = unsafe { poll_cq(self.raw(), wanted, polled.as_mut_ptr().cast()) };
        let Ok(taken) = usize::try_from(count) else {
            return Err(CallError::new(
                "ibv_poll_cq",
                self.inner.device.name(),
                count,
            ));
        };
        let before = into.len();
        for wc in &polled[..taken.min(batch)] {
            // SAFETY: the provider filled the first `taken` entries.
            let wc = unsafe { wc.assume_init_ref() };
            into.extend(ledger.settle(wc, self.inner.device.name()));
        }
        let known = into.len() - before;
        Ok(Polled { taken, known })
    }

    /// Requests that the next completion makes the file readable.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn arm(&self) -> Result<(), CallError> {
        // SAFETY: the queue is alive, and with it its context.
        let req_notify_cq = unsafe { (*self.inner.device.raw()).ops.req_notify_cq };
        // SAFETY: the provider's function of this queue's device; 0 asks for any completion.
        match unsafe { req_notify_cq(self.raw(), 0) } {
            0 => Ok(()),
            code => Err(CallError::new(
                "ibv_req_notify_cq",
                self.inner.device.name(),
                code,
            )),
        }
    }

    /// The file that becomes readable; `None` if the queue was created without events.
    pub fn events_file(&self) -> Option<BorrowedFd<'_>> {
        self.inner.channel.as_ref().map(Channel::file)
    }

    /// Takes pending events, so that the file is readable only for new ones; returns their number.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn take_events(&self) -> Result<u32, CallError> {
        let Some(channel) = &self.inner.channel else {
            return Ok(0);
        };
        let mut count = 0;
        let ended = loop {
            match channel.take_event() {
                Ok(true) => count += 1,
                Ok(false) => break Ok(()),
                Err(why) => break Err(why),
            }
        };
        // Those that came ahead of an error, too: the queue's end waits until all are acknowledged.
        if count > 0 {
            // SAFETY: the channel serves this queue alone, so all its events are this queue's.
            unsafe { (self.inner.device.api().ibv_ack_cq_events)(self.raw(), count) };
        }
        ended.map(|()| count)
    }
}

/// The result of one poll of the device.
struct Polled {
    /// Completions that the device returned.
    taken: usize,
    /// Those of live queue pairs.
    known: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: created once; queue pairs on it hold a clone of the queue, so they are gone, and
        // every event was acknowledged when it was taken. The channel goes after this. A failure
        // leaves the kernel's part to the end of the process.
        unsafe { (self.device.api().ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}
