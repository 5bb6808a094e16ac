//! Decode's rooms: who may open one, what is offered to prefill, when it ends.
//!
//! 1. `open` enters a room; its `room_task` finds and registers with prefill's ranks (`WaitingForInput`).
//! 2. `init` offers pages; the task sends a `TransferInfo` to each rank until it is answered.
//! 3. Bytes arrive (`Transferring`) and are counted per prefill rank in `incoming.rs`: by frame (tcp), by
//!    pulled chunk (shm), or all of the rank at once (rdma).
//! 4. All are there and the row is this room's: `Success`, and prefill is notified (`complete`, there too). Or
//!    the room fails: its fence closes at once, and prefill gets aborts until it answers (`messages.rs`).
//! 5. `close` forgets the room; memory that is still fenced comes back through `take_reclaimed`.

pub(crate) mod incoming;
mod messages;
pub(crate) mod prefill_peer;
pub(crate) mod room;
pub(crate) mod room_task;
mod single_flight;

use crate::bootstrap::client::{BootstrapClient, Topology};
use crate::config::{BootstrapAddr, TransportChoice};
use crate::error::{OpenError, StartError};
use crate::failure::FailureReason;
use crate::memory::Region;
use crate::net::Stream;
use crate::peer_connection::{ConnectionKind, Hello};
use crate::receiver::{KvReceiver, ReceiverRequest};
use crate::shared::Shared;
use crate::transport::incoming::InboundRooms;
use crate::transport::rdma::sessions::RailSessions;
use crate::{control, items, peer_connection};
use parking_lot::Mutex;
use pd_identity::PeerId;
use pd_protocol::control::{Generation, RegisterAck, SessionId};
use pd_protocol::metadata::MetadataRow;
use pd_protocol::ports::FAKE_BOOTSTRAP_HOST;
use pd_protocol::{BootstrapRoom, KvPoll};
use prefill_peer::{PeerKey, PrefillPeer};
use room::{OfferedMemory, ReceiverRoom};
use single_flight::SingleFlight;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;

/// What must be the same on both sides where their digests differ.
const KV_COMPAT_IS_OF: &str = "the model's files, --dtype, --kv-cache-dtype, --page-size and --speculative-algorithm NEXTN \
                               must be the same on both";

pub(crate) struct DecodeSide {
    pub(crate) shared: Arc<Shared>,
    pub(crate) bootstrap: BootstrapClient,
    pub(crate) topologies: SingleFlight<BootstrapAddr, Topology>,
    pub(crate) registrations: SingleFlight<PeerKey, Arc<PrefillPeer>>,
    rooms: Mutex<HashMap<BootstrapRoom, Arc<ReceiverRoom>>>,
    /// Dropped receivers whose memory is still fenced.
    fenced: Mutex<Vec<Arc<ReceiverRoom>>>,
    /// Failed rooms whose prefill has not answered the abort.
    aborting: Mutex<Vec<Arc<ReceiverRoom>>>,
    peers: Mutex<HashMap<SessionId, Arc<PrefillPeer>>>,
    registering: Mutex<HashMap<SessionId, oneshot::Sender<Registered>>>,
    pub(crate) rails: RailSessions,
    next: AtomicU64,
    ports: OnceLock<Ports>,
}

/// Prefill's answer to a registration, and which process gave it.
type Registered = (RegisterAck, Option<PeerId>);

#[derive(Clone, Copy, Debug)]
struct Ports {
    control: u16,
    data: u16,
}

impl DecodeSide {
    pub(crate) async fn start(shared: Arc<Shared>) -> Result<Arc<Self>, StartError> {
        let client = BootstrapClient::new(
            shared.config.transfer.peers.clone(),
            shared.config.transfer.patience(),
        );
        let tasks = shared.tasks.clone();
        let rails = RailSessions::new(Arc::clone(&shared));
        let side = Arc::new(Self {
            shared,
            bootstrap: client,
            topologies: SingleFlight::new(tasks.clone()),
            registrations: SingleFlight::new(tasks),
            rooms: Mutex::default(),
            fenced: Mutex::default(),
            aborting: Mutex::default(),
            peers: Mutex::default(),
            registering: Mutex::default(),
            rails,
            next: AtomicU64::new(1),
            ports: OnceLock::new(),
        });
        let transfer = &side.shared.config.transfer;
        let host = transfer.host;
        let listen_error = |source| StartError::Listen { host, source };
        let handler = Arc::clone(&side);
        let tasks = &side.shared.tasks;
        let on_message = move |message, from| handler.handle(message, from);
        let control = control::listener::listen(tasks, transfer, on_message)
            .await
            .map_err(listen_error)?;
        let owner = Arc::clone(&side);
        let on_connection = move |hello: Hello, stream| owner.on_connection(&hello, stream);
        let data = peer_connection::listen(tasks, transfer, on_connection)
            .await
            .map_err(listen_error)?;
        let ports = Ports { control, data };
        side.ports.set(ports).expect("the ports are set once");
        Ok(side)
    }

    fn ports(&self) -> Ports {
        *self.ports.get().expect("set before a room is opened")
    }

    pub(crate) fn control_port(&self) -> u16 {
        self.ports().control
    }

    pub(crate) fn data_port(&self) -> u16 {
        self.ports().data
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.shared.regions
    }

    pub(crate) fn new_session_id(&self) -> SessionId {
        let config = &self.shared.config;
        let registration = self.next.fetch_add(1, Ordering::Relaxed);
        SessionId::new(&config.boot_id, config.rank, registration, rand::random())
    }

    pub(crate) fn expect_ack(&self, id: &SessionId, ack: oneshot::Sender<Registered>) {
        let mut registering = self.registering.lock();
        registering.retain(|_, ack| !ack.is_closed());
        registering.insert(id.clone(), ack);
    }

    pub(crate) fn enter_peer(&self, peer: &Arc<PrefillPeer>) {
        self.peers
            .lock()
            .insert(peer.remote.session_id.clone(), Arc::clone(peer));
    }

    /// Whether some rank of a prefill has taken a registration, and lives.
    pub(crate) fn is_registered_with(&self, addr: &BootstrapAddr) -> bool {
        let peers = self.peers.lock();
        peers.values().any(|peer| peer.key.bootstrap_addr == *addr)
    }

    /// What the bootstrap server says must fit, before any rank is asked.
    fn check_topology(&self, topology: &Topology) -> Result<(), FailureReason> {
        let config = &self.shared.config;
        let own_dtype = config.kv.layout.groups[0].dtype.name();
        let differs = |what, prefill: &str, own: &str| {
            let message = format!("{what} differs: prefill has {prefill}, decode has {own}");
            Err(FailureReason::peer(message))
        };
        let info = &topology.info;
        if info.page_size != config.kv.layout.page_size {
            let own = config.kv.layout.page_size.to_string();
            return differs("page_size", &info.page_size.to_string(), &own);
        }
        if info.kv_cache_dtype != own_dtype {
            return differs("kv_cache_dtype", &info.kv_cache_dtype, own_dtype);
        }
        match &topology.kv_compat {
            Some(kv_compat) if *kv_compat != config.kv_compat => {
                let message = format!(
                    "kvCompat differs: prefill has {kv_compat}, decode has {}; {KV_COMPAT_IS_OF}",
                    config.kv_compat
                );
                Err(FailureReason::peer(message))
            }
            _ => Ok(()),
        }
    }

    /// A prefill rank has opened a data connection (tcp): its frames come in.
    fn on_connection(self: &Arc<Self>, hello: &Hello, stream: Stream) {
        let peer = self.peers.lock().get(&hello.session_id).cloned();
        let is_its_own = |peer: &Arc<PrefillPeer>| {
            let is_named = matches!(stream, Stream::Tls(_));
            hello.kind == ConnectionKind::Data && (!is_named || peer.process == stream.peer())
        };
        let Some(peer) = peer.filter(is_its_own) else {
            if let Some(left_out) = self.shared.log.allows() {
                tracing::warn!(session = %hello.session_id, left_out, "closed the connection of an unknown session");
            }
            return;
        };
        let rooms: Arc<dyn InboundRooms> = self.clone();
        peer.inbound.on_stream(stream, rooms);
    }

    /// A prefill rank is lost: its rooms fail, its layout is read again. One that registers but whose
    /// bytes never come is left alone for a while.
    pub(crate) fn lose(self: &Arc<Self>, peer: &Arc<PrefillPeer>, reason: &FailureReason) {
        if self.peers.lock().remove(&peer.remote.session_id).is_none() {
            return;
        }
        peer.remote.lost.cancel();
        peer.remote.metrics.leave();
        self.rails.close(&peer.remote.session_id);
        let transport_report = &self.shared.config.transfer.transport_report;
        transport_report.leave(&peer.key.to_string());
        self.topologies.forget(&peer.key.bootstrap_addr);
        if peer.proven.load(Ordering::Relaxed) {
            self.registrations.forget(&peer.key);
        } else {
            self.registrations
                .blacklist(peer.key.clone(), reason.clone());
        }
        let rooms: Vec<Arc<ReceiverRoom>> = self.rooms.lock().values().cloned().collect();
        let mut failed = 0;
        for room in rooms
            .iter()
            .filter(|room| room.waits_for(&peer.remote.session_id))
        {
            failed += usize::from(self.fail(room, reason.clone()));
        }
        tracing::info!(session = %peer.remote.session_id, %reason, failed, "prefill session ended");
    }

    pub(crate) fn open(
        self: &Arc<Self>,
        request: ReceiverRequest,
    ) -> Result<KvReceiver, OpenError> {
        let config = &self.shared.config;
        let id = request.room;
        let fake = request.bootstrap_addr.host == FAKE_BOOTSTRAP_HOST
            || config.transfer.transport == TransportChoice::Fake;
        let room = Arc::new(ReceiverRoom::new(
            self,
            id,
            Generation(self.next.fetch_add(1, Ordering::Relaxed)),
            (request.bootstrap_addr, request.prefill_dp_rank),
            (fake, self.shared.fault_injection.draw()),
            (&config.waker, config.transfer.metrics.fences()),
        ));
        {
            let mut rooms = self.rooms.lock();
            if rooms.contains_key(&id) {
                return Err(OpenError::DuplicateRoom(id));
            }
            rooms.insert(id, Arc::clone(&room));
        }
        if fake {
            room.progress.advance(KvPoll::WaitingForInput);
        } else {
            let running = room_task::run(Arc::clone(self), Arc::clone(&room));
            self.shared.tasks.spawn("room", running);
        }
        // After the insert: `fail_all` has seen the room, or has left the reason.
        if let Some(reason) = self.shared.failure() {
            self.fail(&room, reason);
        }
        Ok(KvReceiver {
            side: Arc::clone(self),
            room,
        })
    }

    pub(crate) fn init(self: &Arc<Self>, room: &Arc<ReceiverRoom>, offer: OfferedMemory) {
        let layout = &self.shared.config.kv.layout;
        let (pages, row) = (&offer.page_indices, offer.metadata_buffer_index);
        let checked = items::check_pages(layout, pages)
            .and_then(|()| items::request_pages(layout, offer.decode_prefix_len, pages.len()))
            .and_then(|pages| items::check_states(layout, &offer.state_indices, pages))
            .and_then(|()| {
                let cleared = self.shared.config.kv.metadata.clear_row(row);
                cleared.map_err(|error| error.to_string())
            });
        if let Err(what) = checked {
            let message = format!("room {}: init offers {what}", room.id);
            self.fail(room, FailureReason::application(message));
            return;
        }
        room.state.lock().offer(offer);
        if room.fake {
            self.receive_fake(room, row);
        } else {
            room.offered.notify_one();
        }
    }

    fn receive_fake(self: &Arc<Self>, room: &Arc<ReceiverRoom>, metadata_buffer_index: u32) {
        let row = MetadataRow::new(room.id, 0);
        let metadata = &self.shared.config.kv.metadata;
        match metadata.write_row(metadata_buffer_index, &row) {
            Ok(()) => {
                room.fence.close();
                room.progress.advance(KvPoll::Success);
            }
            Err(error) => {
                self.fail(room, FailureReason::application(error.to_string()));
            }
        }
    }

    pub(crate) fn open_room(&self, room: BootstrapRoom) -> Option<Arc<ReceiverRoom>> {
        self.rooms.lock().get(&room).cloned()
    }

    /// The manager has failed.
    pub(crate) fn fail_all(self: &Arc<Self>, reason: &FailureReason) {
        let rooms: Vec<_> = self.rooms.lock().values().cloned().collect();
        for room in rooms {
            self.fail(&room, reason.clone());
        }
    }

    pub(crate) fn close(&self, room: &Arc<ReceiverRoom>) {
        self.rooms.lock().remove(&room.id);
        if !room.fence.is_released() {
            self.fenced.lock().push(Arc::clone(room));
        }
    }

    pub(crate) fn take_reclaimed(&self) -> Vec<OfferedMemory> {
        let mut fenced = self.fenced.lock();
        let (released, waiting) = std::mem::take(&mut *fenced)
            .into_iter()
            .partition(|room: &Arc<ReceiverRoom>| room.fence.is_released());
        *fenced = waiting;
        let offers = released
            .into_iter()
            .filter_map(|room| room.state.lock().offer.take());
        offers.collect()
    }
}
