//! The way in from one prefill rank, over the transport that was negotiated: data connections (tcp,
//! `on_stream`), offers of chunks (shm, `on_offer`), or rooms opened to prefill's NICs (rdma, `expect`). What
//! arrives is reported to the room: `InboundRoom::part_arrived` (tcp, shm) or `rank_arrived` (rdma).

use super::incoming::{InboundPeer, InboundRoom, InboundRooms};
use super::negotiate::NegotiatedTransport;
use super::rdma::receiver::RdmaReceiver;
use super::shm::pull;
use super::tcp::reader;
use crate::failure::FailureReason;
use crate::net::Stream;
use crate::shared::Shared;
use pd_protocol::control::{ChunkReady, Generation};
use std::sync::Arc;
use tokio::sync::mpsc;

/// See the module's header.
pub(crate) struct Inbound {
    shared: Arc<Shared>,
    peer: Arc<InboundPeer>,
    transport: InboundTransport,
}

enum InboundTransport {
    /// A task for each data connection that prefill opens.
    Tcp,
    /// Offers of chunks to the task that pulls them.
    Shm(mpsc::Sender<ChunkReady>),
    /// Queue pairs that prefill's NICs write over.
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
        let transport = match negotiated {
            NegotiatedTransport::Tcp => InboundTransport::Tcp,
            NegotiatedTransport::Rdma(rails) => InboundTransport::Rdma(rails),
            NegotiatedTransport::Shm(mapping) => {
                let (offers, waiting) = mpsc::channel(pull::OFFERS_MAX);
                let (own, peer) = (Arc::clone(shared), Arc::clone(peer));
                let pulling = pull::run((own, rooms), peer, mapping, waiting);
                shared.tasks.spawn("pull", pulling);
                InboundTransport::Shm(offers)
            }
        };
        Self {
            shared: Arc::clone(shared),
            peer: Arc::clone(peer),
            transport,
        }
    }

    /// Reads the frames of a data connection that prefill has opened, until it ends: then the peer is lost.
    pub(crate) fn on_stream(&self, stream: Stream, rooms: Arc<dyn InboundRooms>) {
        let (shared, peer) = (Arc::clone(&self.shared), Arc::clone(&self.peer));
        self.shared.tasks.spawn("data connection", async move {
            let ended = tokio::select! {
                ended = reader::run(&rooms, &shared.regions, &peer, stream) => ended,
                () = peer.lost.cancelled() => return,
            };
            let why = ended
                .err()
                .map_or_else(|| "closed".to_owned(), |error| error.to_string());
            let from = &peer.bootstrap_addr;
            let reason = FailureReason::network(format!("data connection from {from}: {why}"));
            rooms.peer_lost(&peer.session_id, &reason);
        });
    }

    /// Takes an offer of a chunk to pull.
    ///
    /// # Errors
    /// Why its room fails: too many offers wait, or prefill is to push.
    pub(crate) fn on_offer(&self, ready: ChunkReady) -> Result<(), FailureReason> {
        let room = ready.room;
        let InboundTransport::Shm(offers) = &self.transport else {
            let transport = self.peer.transport;
            let message =
                format!("room {room}: prefill offers a chunk to pull, but pushes over {transport}");
            return Err(FailureReason::peer(message));
        };
        offers.try_send(ready).map_err(|_| {
            let message = format!("room {room}: more chunks are offered than can wait");
            FailureReason::network(message)
        })
    }

    /// Opens a room's memory to a transport that writes by itself; false if it is gone.
    pub(crate) fn expect(&self, row: u32, room: Arc<dyn InboundRoom>) -> bool {
        match &self.transport {
            InboundTransport::Rdma(rails) => rails.expect(row, room),
            InboundTransport::Tcp | InboundTransport::Shm(_) => true,
        }
    }

    /// Prefill writes nothing more for a room.
    pub(crate) fn forget(&self, row: u32, generation: Generation) {
        if let InboundTransport::Rdma(rails) = &self.transport {
            rails.forget(row, generation);
        }
    }
}
