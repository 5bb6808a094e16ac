//! Chunks that lie in prefill's memory on this host, which decode copies itself (shm).

use super::super::DecodeSide;
use super::super::prefill_peer::PrefillPeer;
use super::{Announced, Offered};
use crate::failure::FailureReason;
use crate::items;
use crate::plan::Tail;
use crate::transport::incoming::IncomingPart;
use pd_protocol::control::ChunkReady;
use std::sync::Arc;

impl DecodeSide {
    pub(crate) fn on_chunk_ready(self: &Arc<Self>, ready: ChunkReady) {
        let Some(peer) = self.peer(&ready.session_id) else {
            return;
        };
        let (id, generation) = (ready.room, ready.generation);
        if let Err(reason) = peer.inbound.on_offer(ready)
            && let Some(room) = self.open_room(id)
            && room.generation == generation
        {
            self.fail(&room, reason);
        }
    }

    /// Where it goes.
    pub(super) fn locate_pulled(self: &Arc<Self>, ready: &ChunkReady) -> Option<IncomingPart> {
        let announced = Announced {
            room: ready.room,
            generation: ready.generation,
            session_id: &ready.session_id,
            first_page: ready.first_page,
            page_count: ready.page_indices.len(),
            last: ready.last.is_some(),
        };
        let offered = self.offered(&announced)?;
        let checked = check_source(&offered.peer, ready, &offered);
        let Offered {
            room,
            peer,
            pages,
            tail,
            ..
        } = offered;
        if let Err(what) = checked {
            let message = format!("room {}: prefill offers {what}", room.id);
            self.fail(&room, FailureReason::peer(message));
            return None;
        }
        let mut copies = peer.plan.page_ranges(&ready.page_indices, &pages);
        let parts = peer.plan.page_parts(pages.len());
        peer.remote
            .metrics
            .planned(peer.remote.transport, parts, copies.len());
        if let (Some(tail), Some(last)) = (&tail, ready.last) {
            let src = Tail {
                state_indices: &ready.state_indices,
                metadata_buffer_index: last.metadata_buffer_index,
            };
            copies.extend(peer.plan.tail_ranges(src, tail.as_tail()));
        }
        let bytes = copies.iter().map(|copy| copy.len).sum();
        Some(announced.incoming(room, bytes, Vec::new(), copies))
    }
}

/// What a chunk names must lie within the memory that prefill described, and be as much as decode offered.
fn check_source(peer: &PrefillPeer, ready: &ChunkReady, offered: &Offered) -> Result<(), String> {
    let layout = &peer.layout;
    items::check_pages(layout, &ready.page_indices)?;
    let (Some(last), Some(tail)) = (ready.last, &offered.tail) else {
        return Ok(());
    };
    items::check_row(layout, last.metadata_buffer_index)?;
    items::check_states(layout, &ready.state_indices, offered.request_pages)?;
    items::check_equal(layout, &ready.state_indices, &tail.state_indices)
}
