//! The way out to one decode rank, over each transport. Decode names the transport of each room, and a
//! transport starts with the first room or message that needs it.

use super::outgoing::{OutboundChunk, OutboundPeer, OutboundRoom};
use super::rdma::writer::handle::{Event, WriterHandle};
use super::shm;
use super::tcp::writer::Streams;
use crate::failure::FailureReason;
use crate::shared::Shared;
use pd_protocol::control::{Generation, NicInfo, RailAnswer, RailClosed, TransferInfo};
use pd_protocol::{BootstrapRoom, Transport};
use std::sync::{Arc, OnceLock};

/// See the module's header.
pub(crate) struct Outbound {
    shared: Arc<Shared>,
    peer: Arc<OutboundPeer>,
    streams: Streams,
    /// Once decode has asked for rails.
    rails: OnceLock<WriterHandle>,
}

// === impl Outbound ===

impl Outbound {
    pub(crate) fn new(shared: Arc<Shared>, peer: Arc<OutboundPeer>) -> Self {
        Self {
            shared,
            peer,
            streams: Streams::new(),
            rails: OnceLock::new(),
        }
    }

    /// Opens what rooms over `transport` need, within the runtime.
    pub(crate) fn open(&self, transport: Transport) {
        match transport {
            Transport::Tcp => self.streams.start(&self.shared, &self.peer),
            // Decode maps the memory, or has asked for rails before.
            Transport::Shm | Transport::Rdma => {}
        }
    }

    /// Sends a chunk to a room of decode's; `lease` takes the room's lease, for decode to pull under.
    ///
    /// # Errors
    /// Why the room fails: a queue is full, or decode offered too little.
    pub(crate) fn send<R: OutboundRoom + 'static>(
        &self,
        room: &Arc<R>,
        info: &TransferInfo,
        chunk: &OutboundChunk,
        lease: impl FnOnce() -> Option<(u32, u64)>,
    ) -> Result<(), FailureReason> {
        match info.transport {
            Transport::Tcp => {
                let to = (&*self.peer, self.shared.regions.as_slice());
                self.streams.send(to, room, info, chunk)
            }
            Transport::Rdma => {
                let not_asked_for = || {
                    let id = room.id();
                    let message =
                        format!("room {id}: decode wants it over rails but has asked for none");
                    FailureReason::peer(message)
                };
                let rails = self.rails.get().ok_or_else(not_asked_for)?;
                rails.send(&self.peer, room, info, chunk)
            }
            Transport::Shm => shm::offer::send(&self.peer, room.id(), info, (chunk, lease())),
        }
    }

    /// Decode asks for rails between its NICs and ours, or with an empty list wants none any more.
    pub(crate) fn on_rails_wanted(&self, nics: &[NicInfo]) {
        match &self.shared.fabric {
            _ if nics.is_empty() => {
                self.notify_rails(Event::Unwanted);
            }
            Some(fabric) => {
                let start = || WriterHandle::start(&self.shared, &self.peer, fabric, nics);
                self.rails.get_or_init(start);
            }
            None => {
                tracing::warn!(session = %self.peer.id(), "decode asks for rails that were not offered")
            }
        }
    }

    pub(crate) fn on_rail_answer(&self, answer: RailAnswer) {
        self.notify_rails(Event::Answered(answer));
    }

    pub(crate) fn on_rail_closed(&self, closed: RailClosed) {
        self.notify_rails(Event::Closed(closed));
    }

    /// Decode has aborted a room; true if the transport confirms it once nothing more can land.
    pub(crate) fn on_abort(&self, room: BootstrapRoom, generation: Generation) -> bool {
        self.notify_rails(Event::Aborted(room, generation))
    }

    /// False where no task tends rails.
    fn notify_rails(&self, event: Event) -> bool {
        let rails = self.rails.get();
        rails.is_some_and(|rails| rails.notify(&self.peer, event))
    }
}
