//! Chunks that decode copies itself out of this process's memory, on the same host (shm).

use super::PrefillSide;
use super::room::SenderState;
use crate::transport::outgoing::OutboundRoom;
use crate::transport::shm::lease::{Lease, LeaseTable};
use pd_protocol::Transport;
use pd_protocol::control::ChunkDone;
use std::sync::Arc;
use std::time::Duration;

impl PrefillSide {
    /// Decode has copied a chunk.
    pub(super) fn on_chunk_done(&self, done: &ChunkDone) {
        let Some(room) = self.open_room(done.room) else {
            return;
        };
        if !room.is_joined_by(&done.session_id, done.generation) {
            return;
        }
        if let Some(peer) = self.peer(&done.session_id) {
            peer.remote.metrics.moved(Transport::Shm, done.bytes);
        }
        room.report(
            done.bytes,
            Duration::from_nanos(done.duration_ns),
            done.last,
        );
    }
}

impl SenderState {
    /// The room's lease, taken at its first pulled chunk: `(index, value)`.
    pub(super) fn hold_lease(
        lease: &mut Option<Lease>,
        table: &Arc<LeaseTable>,
    ) -> Option<(u32, u64)> {
        if lease.is_none() {
            *lease = table.take();
        }
        lease.as_ref().map(|lease| (lease.idx, lease.value))
    }
}
