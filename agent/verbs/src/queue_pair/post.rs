//! Posting: as much as fits, with one doorbell, counted before the device sees it.

use crate::error::CallError;
use crate::ffi;
use crate::queue_pair::{QueuePair, Receives, Rts};
use crate::work_request::{Limits, Write, WriteError};

/// Why writes were not posted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PostError {
    /// Nothing was posted.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The first `taken` writes were posted.
    #[error("{reason} (after {taken} writes)")]
    Call { taken: usize, reason: CallError },
}

impl QueuePair<Rts> {
    /// Posts writes with one doorbell, in order, as many as fit into the send queue, and returns
    /// their number; the caller posts the rest after it has polled completions.
    ///
    /// The bytes must not change until a completion of this write or a later one was polled.
    ///
    /// # Errors
    /// One of the writes can never be accepted (then none is posted), or the device refuses.
    pub fn post(&mut self, writes: &[Write<'_>]) -> Result<usize, PostError> {
        let core = &self.core;
        let Rts {
            chain,
            message_bytes_max,
        } = &mut self.state;
        let limits = Limits {
            ranges_max: core.ranges_max,
            message_bytes_max: *message_bytes_max,
            inline_bytes_max: core.inline_bytes_max,
        };
        for (index, write) in writes.iter().enumerate() {
            write.check(index, limits, &core.domain)?;
        }
        // Held until the device has them, so that no completion arrives before its request is
        // counted.
        let mut queue = core.send.queue().lock();
        chain.clear();
        for write in writes {
            let Some(admitted) = queue.push(write.tag, write.signalled) else {
                break;
            };
            chain.push(write, core.send.wr_id(admitted.position), admitted, limits);
        }
        if chain.len() == 0 {
            return Ok(0);
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair is alive, and with it its context.
        let post_send = unsafe { (*core.domain.device().raw()).ops.post_send };
        // SAFETY: the provider's function of this queue pair's device. The chain and its ranges live
        // through the call; inline bytes are read in it, from regions that `writes` borrows.
        let code = unsafe { post_send(core.raw(), chain.link(), &raw mut refused) };
        if code == 0 {
            return Ok(chain.len());
        }
        let taken = chain.taken_before(refused);
        let undone = chain.len() - taken;
        queue.take_back(u32::try_from(undone).expect("no more than the queue holds"));
        let reason = CallError::new("ibv_post_send", core.object(), code);
        Err(PostError::Call { taken, reason })
    }

    /// Writes that fit now.
    pub fn free(&self) -> u32 {
        self.core.send.queue().lock().free()
    }
}

impl<S: Receives> QueuePair<S> {
    /// Posts receives for `count` immediates with one doorbell, as many as fit into the receive
    /// queue, and returns their number.
    ///
    /// # Errors
    /// The device refuses.
    pub fn post_receives(&mut self, count: u32) -> Result<u32, CallError> {
        let core = &self.core;
        let mut queue = core.receive.queue().lock();
        let count = count.min(queue.free());
        let positions = (0..count).map_while(|_| queue.push(0, true));
        let mut requests: Vec<ffi::RecvWr> = positions
            .map(|admitted| ffi::RecvWr {
                wr_id: core.receive.wr_id(admitted.position),
                next: std::ptr::null_mut(),
                sg_list: std::ptr::null_mut(),
                num_sge: 0,
            })
            .collect();
        if requests.is_empty() {
            return Ok(0);
        }
        let first = requests.as_mut_ptr();
        for i in 1..requests.len() {
            requests[i - 1].next = first.wrapping_add(i);
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair is alive, and with it its context.
        let post_recv = unsafe { (*core.domain.device().raw()).ops.post_recv };
        // SAFETY: the provider's function of this queue pair's device; the chain lives through the
        // call and names no memory.
        let code = unsafe { post_recv(core.raw(), first, &raw mut refused) };
        if code == 0 {
            return Ok(count);
        }
        let bytes = (refused as usize).wrapping_sub(first as usize);
        let taken = u32::try_from(bytes / size_of::<ffi::RecvWr>()).unwrap_or(count);
        queue.take_back(count - taken.min(count));
        Err(CallError::new("ibv_post_recv", core.object(), code))
    }
}
