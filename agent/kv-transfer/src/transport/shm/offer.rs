//! Prefill offers a chunk for decode to pull.

use crate::failure::FailureReason;
use crate::transport::outgoing::{OutboundChunk, OutboundPeer};
use pd_protocol::BootstrapRoom;
use pd_protocol::control::chunk::LastPull;
use pd_protocol::control::{ChunkReady, ControlMessage, TransferInfo};

/// # Errors
/// Every lease is in use, or the control queue to decode is full.
pub(crate) fn send(
    peer: &OutboundPeer,
    room: BootstrapRoom,
    info: &TransferInfo,
    (chunk, lease): (&OutboundChunk, Option<(u32, u64)>),
) -> Result<(), FailureReason> {
    let Some((lease_idx, lease)) = lease else {
        let message = format!("room {room}: every lease is in use");
        return Err(FailureReason::application(message));
    };
    let tail = chunk.tail.as_ref();
    let ready = ControlMessage::ChunkReady(ChunkReady {
        session_id: peer.id().clone(),
        room,
        generation: info.generation,
        lease_idx,
        lease,
        first_page: chunk.first_page,
        last: tail.map(|tail| LastPull {
            metadata_buffer_index: tail.metadata_buffer_index,
        }),
        page_indices: chunk.pages.to_vec(),
        state_indices: tail.map_or_else(Vec::new, |tail| tail.state_indices.to_vec()),
    });
    let sent = peer.send(&ready);
    sent.map_err(|error| FailureReason::network(format!("room {room}: {error}")))
}
