//! `KvReceiver`: decode's end of one room. The engine reserves pages and polls; it never blocks.

use crate::config::BootstrapAddr;
use crate::decode_side::DecodeSide;
use crate::decode_side::room::{OfferedMemory, ReceiverRoom};
use crate::failure::FailureReason;
use pd_protocol::{BootstrapRoom, KvPoll};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What opens a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverRequest {
    pub bootstrap_addr: BootstrapAddr,
    pub room: BootstrapRoom,
    /// The request names prefill's data-parallel rank; else it follows from the room.
    pub prefill_dp_rank: Option<u32>,
}

/// What arrived for a room, for the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferReport {
    pub bytes: u64,
    /// First byte to last.
    pub duration: Duration,
}

/// SGLang's `KVReceiver`. Dropping it aborts the room unless it has ended. The engine keeps it until it is
/// `released`; a caller that drops it earlier gets the memory back by `KvManager::take_reclaimed`.
pub struct KvReceiver {
    pub(crate) side: Arc<DecodeSide>,
    pub(crate) room: Arc<ReceiverRoom>,
}

// === impl KvReceiver ===

impl KvReceiver {
    pub fn room(&self) -> BootstrapRoom {
        self.room.id
    }

    /// Offers the pages, in the request's order, the metadata row and the items of each of the layout's
    /// states to fill. `WaitingForInput` says that prefill is known; the call may come before that.
    pub fn init(
        &self,
        page_indices: &[u32],
        metadata_buffer_index: u32,
        state_indices: &[Vec<u32>],
    ) {
        self.init_behind(0, page_indices, metadata_buffer_index, state_indices);
    }

    /// As [`Self::init`], where this side has the KV of the first `decode_prefix_len` tokens: whole pages, and fewer than
    /// the prompt has. The pages are those behind it. Only for a prefill that [`Self::honours_prefix`].
    pub fn init_behind(
        &self,
        decode_prefix_len: u32,
        page_indices: &[u32],
        metadata_buffer_index: u32,
        state_indices: &[Vec<u32>],
    ) {
        let offer = OfferedMemory {
            room: self.room.id,
            decode_prefix_len,
            page_indices: page_indices.to_vec(),
            metadata_buffer_index,
            state_indices: state_indices.to_vec(),
        };
        self.side.init(&self.room, offer);
    }

    /// Whether every prefill rank of the room leaves out what [`Self::init_behind`] says is here. Known with
    /// `WaitingForInput`.
    pub fn honours_prefix(&self) -> bool {
        self.room.state.lock().honours_prefix()
    }

    pub fn poll(&self) -> KvPoll {
        self.room.progress.poll()
    }

    /// Ends the room unless it has ended; both sides fail.
    pub fn abort(&self) {
        self.side
            .fail(&self.room, FailureReason::aborted(self.room.id));
    }

    /// Why `poll` says `Failed`.
    pub fn failure_reason(&self) -> Option<FailureReason> {
        self.room.progress.failure()
    }

    /// The room has ended and no write into its pages, state slots and row can land any more.
    pub fn released(&self) -> bool {
        self.poll().is_terminal() && self.room.fence.is_released()
    }

    /// What arrived; `None` before the first part is in place (over rdma, all that one prefill rank writes).
    pub fn report(&self) -> Option<TransferReport> {
        self.room.report()
    }
}

impl fmt::Debug for KvReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvReceiver")
            .field("room", &self.room.id)
            .field("poll", &self.poll())
            .finish_non_exhaustive()
    }
}

impl Drop for KvReceiver {
    fn drop(&mut self) {
        self.abort();
        self.side.close(&self.room);
    }
}
