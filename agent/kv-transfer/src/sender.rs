//! `KvSender`: prefill's end of one room. The engine hands it what is ready; it never blocks.

use crate::failure::FailureReason;
use crate::prefill_side::PrefillSide;
use crate::prefill_side::room::SenderRoom;
use pd_protocol::{BootstrapRoom, KvPoll};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What opens a sender.
#[derive(Clone, Debug)]
pub struct SenderRequest {
    pub room: BootstrapRoom,
    /// The request's `bootstrap_host` is `ports::FAKE_BOOTSTRAP_HOST`: nothing moves.
    pub fake: bool,
}

/// What comes with the last chunk of a room beside its pages.
#[derive(Clone, Debug, Default)]
pub struct LastChunk {
    /// Items of each of the layout's states.
    pub state_indices: Vec<Vec<u32>>,
}

/// One chunk that has left, for the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkReport {
    pub bytes: u64,
    pub duration: Duration,
    /// End of the chunk, nanoseconds since the Unix epoch.
    pub at_unix_ns: u64,
    pub last: bool,
}

/// SGLang's `KVSender`. Dropping it aborts the room unless it has ended.
pub struct KvSender {
    pub(crate) side: Arc<PrefillSide>,
    pub(crate) room: Arc<SenderRoom>,
}

// === impl KvSender ===

impl KvSender {
    pub fn room(&self) -> BootstrapRoom {
        self.room.id
    }

    /// States how many pages the whole request has and in which row its metadata will stand.
    pub fn init(&self, page_count: usize, metadata_buffer_index: u32) {
        self.side
            .init(&self.room, page_count, metadata_buffer_index);
    }

    /// Hands over the next pages of the request, in order. With `last`, the metadata row must have
    /// been written; nothing may follow.
    pub fn send(&self, page_indices: &[u32], last: Option<LastChunk>) {
        self.side.send(&self.room, page_indices, last);
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

    /// The room has ended and nothing reads its pages, state slots and row any more.
    pub fn released(&self) -> bool {
        self.poll().is_terminal() && self.room.fence.is_released()
    }

    /// Chunks that have left since the last call.
    pub fn take_reports(&self) -> Vec<ChunkReport> {
        self.room.take_reports()
    }
}

impl fmt::Debug for KvSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvSender")
            .field("room", &self.room.id)
            .field("poll", &self.poll())
            .finish_non_exhaustive()
    }
}

impl Drop for KvSender {
    fn drop(&mut self) {
        self.abort();
        self.side.close(&self.room);
    }
}
