//! What prefill's transports know of prefill: the room that sends, the decode rank that gets it, a chunk.

use crate::clock::Instant;
use crate::control::outbox::{Outbox, SendError};
use crate::failure::FailureReason;
use crate::fence::Fence;
use crate::metrics::PeerMetrics;
use crate::plan::{OwnedTail, TransferPlan};
use parking_lot::Mutex;
use pd_protocol::control::{ControlMessage, KvArgsRegisterInfo, SessionId, Status, TransferInfo};
use pd_protocol::{BootstrapRoom, KvPoll};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A room that sends; `SenderRoom` (`prefill_side/room.rs`).
pub(crate) trait OutboundRoom: Send + Sync {
    fn id(&self) -> BootstrapRoom;

    /// Open for as long as transports may read the room's pages.
    fn fence(&self) -> &Fence;

    /// A chunk has left.
    fn report(&self, bytes: u64, duration: Duration, last: bool);

    fn fail(&self, reason: FailureReason);
}

/// Where transports report that a decode rank is out of reach: `PrefillSide`.
pub(crate) trait OutboundEvents: Send + Sync {
    fn lost(&self, session_id: &SessionId, reason: &FailureReason);
}

/// A registered decode rank.
pub(crate) struct OutboundPeer {
    pub(crate) info: KvArgsRegisterInfo,
    pub(crate) plan: TransferPlan,
    pub(crate) lost: CancellationToken,
    pub(crate) metrics: PeerMetrics,
    outbox: Outbox,
    events: Weak<dyn OutboundEvents>,
}

/// Pages of a room, and with the last of them its states and metadata row.
pub(crate) struct OutboundChunk {
    /// Where `pages` stands in the room's list: the request's pages, or those that a decode rank offers.
    pub(crate) first_page: u32,
    pub(crate) pages: Arc<[u32]>,
    pub(crate) tail: Option<OwnedTail>,
}

/// Bytes and time of one chunk on its way to one destination.
pub(crate) struct ChunkMeter {
    started: Mutex<Option<Instant>>,
    bytes: AtomicU64,
    writes_left: AtomicUsize,
    last: bool,
}

// === impl OutboundChunk ===

impl OutboundChunk {
    /// What of a chunk of the request is for a decode rank that has its first `prefix_pages` pages; `None`: nothing.
    pub(crate) fn behind(&self, prefix_pages: usize) -> Option<Self> {
        let prefix = u32::try_from(prefix_pages).unwrap_or(u32::MAX);
        let skipped = prefix.saturating_sub(self.first_page) as usize;
        let pages = match skipped {
            0 => Arc::clone(&self.pages),
            _ => self.pages.get(skipped..).unwrap_or_default().into(),
        };
        let tail = self.tail.clone();
        let is_empty = pages.is_empty() && tail.is_none();
        (!is_empty).then(|| Self {
            first_page: self.first_page.saturating_sub(prefix),
            pages,
            tail,
        })
    }
}

// === impl OutboundPeer ===

impl OutboundPeer {
    pub(crate) fn new(
        info: KvArgsRegisterInfo,
        plan: TransferPlan,
        outbox: Outbox,
        metrics: PeerMetrics,
        events: Weak<dyn OutboundEvents>,
    ) -> Self {
        Self {
            info,
            plan,
            lost: CancellationToken::new(),
            metrics,
            outbox,
            events,
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.info.session_id
    }

    pub(crate) fn send(&self, message: &ControlMessage) -> Result<(), SendError> {
        self.outbox.send(message)
    }

    /// Sends decode the state of a room.
    pub(crate) fn answer(&self, info: &TransferInfo, poll: KvPoll, reason: Option<String>) {
        let status = ControlMessage::Status(Status {
            session_id: self.id().clone(),
            room: info.room,
            generation: info.generation,
            poll,
            reason,
        });
        if let Err(error) = self.send(&status) {
            tracing::warn!(session = %self.id(), %error, "could not send a status");
        }
    }

    /// Waits until the control connection is closed.
    pub(crate) async fn control_closed(&self) {
        self.outbox.closed().await;
    }

    /// Gives the peer up: its rooms fail, its connections close.
    pub(crate) fn lose(&self, reason: &FailureReason) {
        if let Some(events) = self.events.upgrade() {
            events.lost(self.id(), reason);
        }
    }
}

// === impl ChunkMeter ===

impl ChunkMeter {
    pub(crate) fn new(writes: usize, last: bool) -> Self {
        Self {
            started: Mutex::default(),
            bytes: AtomicU64::new(0),
            writes_left: AtomicUsize::new(writes),
            last,
        }
    }

    pub(crate) fn start(&self) {
        self.started.lock().get_or_insert_with(Instant::now);
    }

    /// Counts a write of the chunk that has left, and reports the chunk with its last one.
    pub(crate) fn wrote(&self, room: &dyn OutboundRoom, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.writes_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let started = *self.started.lock();
            let duration = started.map_or(Duration::ZERO, |started| started.elapsed());
            room.report(self.bytes.load(Ordering::Relaxed), duration, self.last);
        }
    }
}
