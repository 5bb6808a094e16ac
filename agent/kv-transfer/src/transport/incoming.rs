//! What decode's transports know of decode: its rooms, the prefill rank that sends, and where bytes go.

use super::tcp::frame::FrameHeader;
use crate::control::socket::Outbox;
use crate::failure::FailureReason;
use crate::fence::Fence;
use crate::metrics::PeerMetrics;
use crate::plan::{CopyRange, Span};
use pd_protocol::control::{ChunkReady, Generation, SessionId};
use pd_protocol::{BootstrapRoom, Transport};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A room that receives.
pub(crate) trait InboundRoom: Send + Sync {
    fn id(&self) -> BootstrapRoom;

    fn generation(&self) -> Generation;

    /// Open for as long as transports may write to the room's pages.
    fn fence(&self) -> &Fence;

    fn fail(self: Arc<Self>, reason: FailureReason);

    /// A part is in place.
    fn arrived(self: Arc<Self>, chunk: &IncomingChunk);

    /// All that the prefill rank of `session` writes is in place.
    fn all_arrived(self: Arc<Self>, session: &SessionId);
}

/// Decode's rooms, as a transport finds them.
pub(crate) trait InboundRooms: Send + Sync {
    /// Where a pushed frame goes; `None` if it is unwanted, and then its payload is dropped.
    fn frame(self: Arc<Self>, session: &SessionId, header: &FrameHeader) -> Option<IncomingChunk>;

    /// What to copy for an offered chunk; `None` if it is unwanted.
    fn pull(self: Arc<Self>, ready: &ChunkReady) -> Option<IncomingChunk>;
}

/// A prefill rank that this one has registered with.
pub(crate) struct InboundPeer {
    pub(crate) session_id: SessionId,
    pub(crate) transport: Transport,
    pub(crate) outbox: Outbox,
    pub(crate) lost: CancellationToken,
    pub(crate) metrics: Arc<PeerMetrics>,
}

/// A part of a room, about to arrive.
pub(crate) struct IncomingChunk {
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
