//! What NICs have written (rdma).

use super::super::DecodeSide;
use super::super::room::ReceiverRoom;
use crate::failure::FailureReason;
use crate::memory::{DeviceMemory, device_of};
use crate::plan::Tail;
use pd_protocol::KvPoll;
use pd_protocol::control::SessionId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl DecodeSide {
    /// All that a prefill rank writes of the room is in place (rdma); the bytes may be here before the report
    /// that they were on their way.
    pub(crate) fn rank_arrived(self: &Arc<Self>, room: &Arc<ReceiverRoom>, session_id: &SessionId) {
        let arrival = {
            let mut state = room.state.lock();
            let peer = state
                .source(session_id)
                .map(|source| Arc::clone(&source.peer));
            let (Some(peer), Some(offer)) = (peer, &state.offer) else {
                return;
            };
            let pages = offer.page_indices.len();
            let tail = peer.plan.dst_tail_spans(Tail {
                state_indices: &offer.state_indices,
                metadata_buffer_index: offer.metadata_buffer_index,
            });
            let tail: u64 = tail.iter().map(|span| span.len).sum();
            let bytes = peer.plan.page_bytes() * pages as u64 + tail;
            peer.remote.metrics.moved(peer.remote.transport, bytes);
            // The report that it begins to send may have been lost.
            peer.proven.store(true, Ordering::Relaxed);
            state.count_arrival(session_id, (0, pages), true, bytes)
        };
        room.progress.advance(KvPoll::Transferring);
        // A device does not see what NICs wrote before a flush; one flush covers all of it.
        let flushed = device_of(self.regions()).map_or(Ok(()), DeviceMemory::flush);
        if let Err(reason) = flushed {
            let message = format!("room {}: {reason}", room.id);
            self.fail(room, FailureReason::device(message));
            return;
        }
        self.on_arrival(room, arrival);
    }
}
