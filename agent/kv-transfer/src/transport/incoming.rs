//! What decode's transports know of decode: its rooms, the prefill rank that sends, and where bytes go.

use super::tcp::frame::FrameHeader;
use crate::config::BootstrapAddr;
use crate::control::outbox::Outbox;
use crate::failure::FailureReason;
use crate::fence::Fence;
use crate::metrics::PeerMetrics;
use crate::plan::{CopyRange, Span};
use pd_protocol::control::{ChunkReady, Generation, SessionId};
use pd_protocol::{BootstrapRoom, Transport};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A room that receives; `ReceiverRoom` (`decode_side/room.rs`).
pub(crate) trait InboundRoom: Send + Sync {
    fn id(&self) -> BootstrapRoom;

    fn generation(&self) -> Generation;

    /// Open for as long as transports may write to the room's pages.
    fn fence(&self) -> &Fence;

    /// A part has begun to arrive and takes a while: who waits for the room's first byte may know. A part that comes at
    /// once wakes no one before its end.
    fn announce(&self);

    fn fail(self: Arc<Self>, reason: FailureReason);

    /// A part is in place (tcp, shm).
    fn part_arrived(self: Arc<Self>, part: &IncomingPart);

    /// All that the prefill rank of `session_id` writes of the room is in place (rdma).
    fn rank_arrived(self: Arc<Self>, session_id: &SessionId);
}

/// Decode's rooms, as a transport finds them. `DecodeSide` implements it in `decode_side/incoming.rs`.
pub(crate) trait InboundRooms: Send + Sync {
    /// Where a pushed frame goes; `None` if it is unwanted, and then its payload is dropped.
    fn locate_frame(
        self: Arc<Self>,
        session_id: &SessionId,
        header: &FrameHeader,
    ) -> Option<IncomingPart>;

    /// What to copy for an offered chunk; `None` if it is unwanted.
    fn locate_chunk(self: Arc<Self>, ready: &ChunkReady) -> Option<IncomingPart>;

    /// A transport has lost the prefill rank of `session_id`.
    fn peer_lost(self: Arc<Self>, session_id: &SessionId, reason: &FailureReason);
}

/// A prefill rank that this one has registered with.
pub(crate) struct InboundPeer {
    /// Where decode asked for it; names it in reasons.
    pub(crate) bootstrap_addr: BootstrapAddr,
    pub(crate) session_id: SessionId,
    pub(crate) transport: Transport,
    pub(crate) outbox: Outbox,
    pub(crate) lost: CancellationToken,
    pub(crate) metrics: Arc<PeerMetrics>,
}

/// A part of a room, about to arrive: a frame over tcp, a chunk over shm. Over rdma prefill's NICs find their
/// way by themselves, and there is none.
pub(crate) struct IncomingPart {
    pub(crate) room: Arc<dyn InboundRoom>,
    pub(crate) session_id: SessionId,
    pub(crate) first_page: usize,
    pub(crate) page_count: usize,
    pub(crate) last: bool,
    pub(crate) bytes: u64,
    /// Pushed: own memory, in the order of the payload.
    pub(crate) spans: Vec<Span>,
    /// Pulled: from the peer's memory to ours.
    pub(crate) copies: Vec<CopyRange>,
}
