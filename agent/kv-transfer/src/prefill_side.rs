//! Prefill's rooms: who may open one, what its senders learn, when it ends.
//!
//! 1. `open` enters a room; decode ranks `join` it, before or after (`messages.rs`).
//! 2. All have: `WaitingForInput`. The engine computes and `send`s chunks (`sending.rs`).
//! 3. A chunk becomes, for each decode rank, writes on its rails (rdma), frames on its streams (tcp), or an
//!    offer that it pulls (shm).
//! 4. Every decode rank reports `Success`. Or the room fails, here or because a decode rank aborts it, and
//!    each gets `Failed` with the reason.
//! 5. `close` forgets the room but remembers that it was used.

mod decode_peer;
mod messages;
mod pulled;
pub(crate) mod room;
mod sending;
mod table;

use crate::bootstrap::client::BootstrapClient;
use crate::clock::Instant;
use crate::config::TransportChoice;
use crate::error::{OpenError, StartError};
use crate::failure::FailureReason;
use crate::fault_injection::FaultPoint;
use crate::net::Stream;
use crate::peer_connection::{ConnectionKind, Hello};
use crate::sender::{KvSender, SenderRequest};
use crate::shared::Shared;
use crate::transport::outgoing::OutboundEvents;
use crate::transport::shm::export::{self, ExportError};
use crate::transport::shm::lease::LeaseTable;
use crate::{control, liveness, peer_connection};
use decode_peer::DecodePeer;
use parking_lot::Mutex;
use pd_protocol::bootstrap::RouteRegistration;
use pd_protocol::control::{SessionId, ShmOffer, TransferInfo};
use pd_protocol::{BootstrapRoom, KvPoll};
use room::SenderRoom;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use table::{Ended, Rooms};

pub(crate) struct PrefillSide {
    pub(crate) shared: Arc<Shared>,
    rooms: Mutex<Rooms>,
    peers: Mutex<HashMap<SessionId, Arc<DecodePeer>>>,
    leases: Arc<LeaseTable>,
    /// Where this rank's memory is handed out, if it is.
    shm: Option<ShmOffer>,
    liveness_port: OnceLock<u16>,
}

impl PrefillSide {
    pub(crate) async fn start(shared: Arc<Shared>) -> Result<Arc<Self>, StartError> {
        let leases = Arc::new(LeaseTable::allocate().map_err(StartError::Memory)?);
        let shm = offer_memory(&shared, &leases)?;
        let side = Arc::new(Self {
            shared,
            rooms: Mutex::default(),
            peers: Mutex::default(),
            leases,
            shm,
            liveness_port: OnceLock::new(),
        });
        let transfer = &side.shared.config.transfer;
        let host = transfer.host;
        let listen_error = |source| StartError::Listen { host, source };
        let owner = Arc::clone(&side);
        let tasks = &side.shared.tasks;
        let on_connection = move |hello: Hello, stream| owner.on_connection(&hello, stream);
        let liveness_port = peer_connection::listen(tasks, transfer, on_connection)
            .await
            .map_err(listen_error)?;
        side.liveness_port
            .set(liveness_port)
            .expect("the port is set once");
        let handler = Arc::clone(&side);
        let on_message = move |message, from| handler.handle(message, from);
        let control_port = control::listener::listen(tasks, transfer, on_message)
            .await
            .map_err(listen_error)?;
        side.register(control_port);
        Ok(side)
    }

    fn liveness_port(&self) -> u16 {
        *self.liveness_port.get().expect("set before anyone can ask")
    }

    /// Registers this rank with the bootstrap server; retries until it listens.
    fn register(&self, control_port: u16) {
        let config = &self.shared.config;
        let Some(addr) = config.bootstrap_addr.clone() else {
            return;
        };
        let registration = RouteRegistration {
            attn_tp_size: config.parallel.tp_size,
            attn_tp_rank: config.rank.tp_rank,
            attn_cp_size: config.parallel.cp_size,
            attn_cp_rank: config.rank.cp_rank,
            attn_dp_size: config.parallel.dp_size,
            attn_dp_rank: config.rank.dp_rank,
            pp_size: config.parallel.pp_size,
            pp_rank: config.rank.pp_rank,
            system_dp_size: 1,
            system_dp_rank: 0,
            rank_ip: config.transfer.host.to_string(),
            rank_port: control_port,
            page_size: config.kv.layout.page_size,
            kv_cache_dtype: config.kv.layout.groups[0].dtype.name().to_owned(),
            kv_layout: None,
            load_balance_method: Some("follow_bootstrap_room".to_owned()),
            prefill_http_port: config.http_port,
            decode_allocation_policy: None,
        };
        let boot_id = config.boot_id.clone();
        let client =
            BootstrapClient::new(config.transfer.peers.clone(), config.transfer.patience());
        self.shared.tasks.spawn("registration", async move {
            match client.register(&addr, &registration, &boot_id).await {
                Ok(()) => tracing::info!(%addr, "registered with the bootstrap server"),
                Err(error) => {
                    tracing::error!(%addr, %error, "not registered; decode cannot find this rank")
                }
            }
        });
    }

    fn on_connection(self: &Arc<Self>, hello: &Hello, stream: Stream) {
        let peer = self.peers.lock().get(&hello.session_id).cloned();
        let is_its_own = |peer: &Arc<DecodePeer>| {
            hello.kind == ConnectionKind::Liveness && peer.process == stream.peer()
        };
        let Some(peer) = peer.filter(is_its_own) else {
            if let Some(left_out) = self.shared.log.allows() {
                tracing::warn!(session = %hello.session_id, left_out, "closed the connection of an unknown session");
            }
            return;
        };
        peer.attach();
        let side = Arc::clone(self);
        self.shared.tasks.spawn("liveness", async move {
            let name = format!("decode {}", peer.id());
            let transfer = &side.shared.config.transfer;
            let (interval, patience) = (transfer.heartbeat_interval, transfer.patience());
            tokio::select! {
                reason = liveness::watch(&name, stream, interval, patience) => {
                    side.lose(peer.id(), &reason);
                }
                () = peer.remote.control_closed() => {
                    let reason = format!("the control connection to {name} is closed");
                    side.lose(peer.id(), &FailureReason::network(reason));
                }
                () = peer.remote.lost.cancelled() => {}
            }
        });
    }

    /// A decode peer is lost: its rooms fail, its connections close.
    fn lose(&self, id: &SessionId, reason: &FailureReason) {
        let Some(peer) = self.peers.lock().remove(id) else {
            return;
        };
        peer.remote.lost.cancel();
        peer.remote.metrics.leave();
        let rooms: Vec<Arc<SenderRoom>> = {
            let mut rooms = self.rooms.lock();
            rooms.forget_peer(peer.id());
            rooms.open.values().cloned().collect()
        };
        let mut failed = 0;
        for room in rooms {
            let concerned = {
                let state = room.state.lock();
                let mut known = state.destinations.iter();
                known.any(|d| d.peer.id() == peer.id() && !d.done)
            };
            if concerned {
                failed += usize::from(self.fail(&room, reason.clone()));
            }
        }
        tracing::info!(session = %peer.id(), %reason, failed, "decode session ended");
    }

    pub(crate) fn open(self: &Arc<Self>, request: SenderRequest) -> Result<KvSender, OpenError> {
        let SenderRequest { room: id, fake } = request;
        let config = &self.shared.config;
        let fake = fake || config.transfer.transport == TransportChoice::Fake;
        let fault_point = self.shared.fault_injection.draw();
        let observed = (&config.waker, config.transfer.metrics.fences());
        let room = Arc::new(SenderRoom::new(self, (id, fake), fault_point, observed));
        let (early, ended) = {
            let mut rooms = self.rooms.lock();
            let ended = rooms.ended(id).cloned();
            if rooms.open.contains_key(&id) || (ended == Some(Ended::Used) && !fake) {
                return Err(OpenError::DuplicateRoom(id));
            }
            rooms.open.insert(id, Arc::clone(&room));
            (rooms.take_early(id), ended)
        };
        if let Some(Ended::Aborted(reason)) = ended {
            self.fail(&room, FailureReason::peer(reason));
        } else if fault_point == Some(FaultPoint::Bootstrap) {
            self.fail(&room, FaultPoint::Bootstrap.reason(id));
        }
        let tasks = &self.shared.tasks;
        let entered = tasks.handle().enter();
        for (peer, info) in early {
            self.join(&room, &peer, info);
        }
        if room.fake {
            self.bootstrapped(&room);
        }
        drop(entered);
        tasks.spawn("room", Arc::clone(self).keep_time(Arc::clone(&room)));
        // After the insert: `fail_all` has seen the room, or has left the reason.
        if let Some(reason) = self.shared.failure() {
            self.fail(&room, reason);
        }
        Ok(KvSender {
            side: Arc::clone(self),
            room,
        })
    }

    /// Every decode rank is in.
    fn bootstrapped(&self, room: &Arc<SenderRoom>) {
        match room.fault_point {
            Some(FaultPoint::Waiting) => {
                self.fail(room, FaultPoint::Waiting.reason(room.id));
            }
            _ => {
                room.progress.advance(KvPoll::WaitingForInput);
            }
        }
    }

    /// Fails a room that outlives the bound of its stage.
    async fn keep_time(self: Arc<Self>, room: Arc<SenderRoom>) {
        let transfer = &self.shared.config.transfer;
        let bound = transfer.bootstrap_timeout;
        let bootstrapped = room.progress.reached(KvPoll::WaitingForInput);
        match tokio::time::timeout(bound, bootstrapped).await {
            Err(_) => {
                let message = format!("room {}: decode sent no TransferInfo in {bound:?}", room.id);
                self.fail(&room, FailureReason::network(message));
                return;
            }
            Ok(poll) if poll.is_terminal() => return,
            Ok(_) => {}
        }
        // The sender's thread wakes no task for it: a bound from now on ends before one from a later chunk on.
        let bound = transfer.transfer_timeout;
        let mut deadline = Instant::now() + bound;
        while tokio::time::timeout_at(deadline, room.progress.reached(KvPoll::Success))
            .await
            .is_err()
        {
            let last_sent = room.state.lock().last_sent;
            deadline = last_sent.unwrap_or_else(Instant::now) + bound;
            if deadline <= Instant::now() {
                let message = format!("room {}: decode confirmed nothing in {bound:?}", room.id);
                self.fail(&room, FailureReason::network(message));
            }
        }
    }

    fn open_room(&self, room: BootstrapRoom) -> Option<Arc<SenderRoom>> {
        self.rooms.lock().open.get(&room).cloned()
    }

    /// Fails a room and notifies its decode ranks; false if it had ended before.
    pub(crate) fn fail(&self, room: &SenderRoom, reason: FailureReason) -> bool {
        if room.progress.poll().is_terminal() {
            return false;
        }
        room.close();
        let text = reason.clone();
        let Some(stage) = room.progress.fail(reason) else {
            return false;
        };
        let metrics = &self.shared.config.transfer.metrics;
        metrics.room_failed(stage, text.layer);
        let state = room.state.lock();
        for destination in state.destinations.iter().filter(|d| !d.done) {
            refuse(&destination.peer, &destination.info, &text);
        }
        true
    }

    /// The manager has failed.
    pub(crate) fn fail_all(&self, reason: &FailureReason) {
        let rooms: Vec<_> = self.rooms.lock().open.values().cloned().collect();
        for room in rooms {
            self.fail(&room, reason.clone());
        }
    }

    pub(crate) fn close(&self, room: &SenderRoom) {
        let mut rooms = self.rooms.lock();
        rooms.open.remove(&room.id);
        if !room.fake {
            rooms.end(room.id, Ended::Used);
        }
    }
}

impl OutboundEvents for PrefillSide {
    fn lost(&self, session_id: &SessionId, reason: &FailureReason) {
        self.lose(session_id, reason);
    }
}

/// Sends a decode rank the reason why a room fails.
fn refuse(peer: &DecodePeer, info: &TransferInfo, reason: &FailureReason) {
    let remote = &peer.remote;
    remote.answer(info, KvPoll::Failed, Some(reason.to_string()));
}

/// Offers this rank's memory to decode processes on this host; `None`, with the reason in the log,
/// where that is not wanted or not possible.
///
/// # Errors
/// A directory that was named cannot be used.
fn offer_memory(shared: &Shared, leases: &LeaseTable) -> Result<Option<ShmOffer>, StartError> {
    let config = &shared.config;
    if !config.transfer.shares_memory() {
        return Ok(None);
    }
    let rank = SessionId::new(&config.boot_id, config.rank, 0, 0);
    let dir = config.transfer.shm_dir.as_deref();
    let mut regions = shared.regions.clone();
    regions.push(leases.region().clone());
    match export::serve(&shared.tasks, &rank, dir, &regions) {
        Ok(offer) => Ok(Some(offer)),
        Err(ExportError::Dir(reason)) => Err(StartError::ShmDir {
            dir: dir.unwrap_or(Path::new("")).to_owned(),
            reason,
        }),
        Err(ExportError::Io(error)) => {
            tracing::warn!(%error, "not offering memory to processes on this host");
            Ok(None)
        }
    }
}
