//! The transport from one prefill rank, as it was negotiated, behind one door.

use super::incoming::{InboundPeer, InboundRoom, InboundRooms};
use super::negotiate::NegotiatedTransport;
use super::rdma::receiver::RdmaReceiver;
use super::shm::pull;
use crate::shared::Shared;
use pd_protocol::control::{ChunkReady, Generation};
use std::sync::Arc;
use tokio::sync::mpsc;

/// See the module's header.
pub(crate) enum Inbound {
    /// Prefill opens data connections.
    Tcp,
    /// Offers of chunks to the task that pulls them.
    Shm(mpsc::Sender<ChunkReady>),
    /// Prefill's NICs write.
    Rdma(Arc<RdmaReceiver>),
}

// === impl Inbound ===

impl Inbound {
    /// Starts to receive, within the runtime.
    pub(crate) fn start(
        negotiated: NegotiatedTransport,
        shared: &Arc<Shared>,
        rooms: Arc<dyn InboundRooms>,
        peer: &Arc<InboundPeer>,
    ) -> Self {
        match negotiated {
            NegotiatedTransport::Tcp => Self::Tcp,
            NegotiatedTransport::Rdma(rails) => Self::Rdma(rails),
            NegotiatedTransport::Shm(mapping) => {
                let (offers, waiting) = mpsc::channel(pull::OFFERS_MAX);
                let (own, peer) = (Arc::clone(shared), Arc::clone(peer));
                let pulling = pull::run((own, rooms), peer, mapping, waiting);
                shared.tasks.spawn("pull", pulling);
                Self::Shm(offers)
            }
        }
    }

    /// Takes an offer of a chunk to pull; false if too many wait, or this side does not pull.
    pub(crate) fn on_offer(&self, ready: ChunkReady) -> bool {
        match self {
            Self::Shm(offers) => offers.try_send(ready).is_ok(),
            Self::Tcp | Self::Rdma(_) => false,
        }
    }

    /// Opens a room's memory to a transport that writes by itself; false if it is gone.
    pub(crate) fn expect(&self, row: u32, room: Arc<dyn InboundRoom>) -> bool {
        match self {
            Self::Rdma(rails) => rails.expect(row, room),
            Self::Tcp | Self::Shm(_) => true,
        }
    }

    /// Prefill writes nothing more for a room.
    pub(crate) fn forget(&self, row: u32, generation: Generation) {
        if let Self::Rdma(rails) = self {
            rails.forget(row, generation);
        }
    }
}
