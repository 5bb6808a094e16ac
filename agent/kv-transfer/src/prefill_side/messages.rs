//! How prefill handles control messages. Each may come twice, late, or from a decode peer that is lost.

use super::decode_peer::DecodePeer;
use super::room::SenderRoom;
use super::table::Ended;
use super::{PrefillSide, refuse};
use crate::clock::Instant;
use crate::config::BootstrapAddr;
use crate::config::rank_name;
use crate::control::outbox::Outbox;
use crate::failure::FailureReason;
use crate::items;
use crate::plan::{End, TransferPlan};
use crate::transport::outgoing::{OutboundEvents, OutboundPeer};
use pd_identity::PeerId;
use pd_protocol::KvPoll;
use pd_protocol::Transport;
use pd_protocol::compat::{KvMeaning, check_pair};
use pd_protocol::control::{
    Abort, AbortAck, ControlMessage, KvArgsRegisterInfo, RegisterAck, SessionId, Status,
    TransferInfo,
};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Registered decode ranks at once.
const PEERS_MAX: usize = 4096;
/// Of them, those whose liveness connection has not come.
const UNATTACHED_MAX: usize = 256;
/// Of a reason that a peer gives, as much as is kept.
const REASON_CHARS_MAX: usize = 300;
/// A decode peer whose liveness connection does not come is lost after this.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

impl PrefillSide {
    pub(crate) fn handle(self: &Arc<Self>, message: ControlMessage, from: Option<PeerId>) {
        let known = self.peers.lock().get(message.session_id()).cloned();
        if known.is_some_and(|peer| peer.process != from) {
            tracing::debug!(session = %message.session_id(), "dropped a message of another process than the session's");
            return;
        }
        match message {
            ControlMessage::Register(info) => self.on_register(*info, from),
            ControlMessage::TransferInfo(info) => self.on_transfer_info(info),
            ControlMessage::ChunkDone(done) => self.on_chunk_done(&done),
            ControlMessage::Status(status) => self.on_status(&status),
            ControlMessage::Abort(abort) => self.on_abort(abort),
            ControlMessage::RailsWanted(wanted) => {
                if let Some(peer) = self.peer(&wanted.session_id) {
                    peer.outbound.on_rails_wanted(&wanted.nics);
                }
            }
            ControlMessage::RailAnswer(answer) => {
                if let Some(peer) = self.peer(&answer.session_id) {
                    peer.outbound.on_rail_answer(answer);
                }
            }
            ControlMessage::RailClosed(closed) => {
                if let Some(peer) = self.peer(&closed.session_id) {
                    peer.outbound.on_rail_closed(closed);
                }
            }
            ControlMessage::RegisterAck(_)
            | ControlMessage::RailOffer(_)
            | ControlMessage::RailDown(_)
            | ControlMessage::ChunkReady(_)
            | ControlMessage::AbortAck(_) => {
                if let Some(left_out) = self.shared.log.allows() {
                    tracing::warn!(left_out, "dropped a message for decode");
                }
            }
        }
    }

    pub(super) fn peer(&self, id: &SessionId) -> Option<Arc<DecodePeer>> {
        let peer = self.peers.lock().get(id).cloned();
        if peer.is_none() {
            tracing::debug!(%id, "dropped a message of an ended session");
        }
        peer
    }

    fn on_register(self: &Arc<Self>, info: KvArgsRegisterInfo, from: Option<PeerId>) {
        let known = self.peers.lock().get(&info.session_id).cloned();
        if let Some(peer) = known {
            // Our answer was slow: once more.
            let ack = self.register_ack(peer.id().clone(), None);
            let _ = peer
                .remote
                .send(&ControlMessage::RegisterAck(Box::new(ack)));
            return;
        }
        // Each ends within `ATTACH_TIMEOUT`; a decode of ours asks again until then.
        if self.unattached() >= UNATTACHED_MAX {
            self.shared.config.transfer.metrics.registration_refused();
            tracing::debug!(session = %info.session_id, "left out a registration: too many have no liveness connection");
            return;
        }
        let endpoint = BootstrapAddr {
            host: info.endpoint.clone(),
            port: info.dst_port,
        };
        let peers = &self.shared.config.transfer.peers;
        let outbox = Outbox::connect(&self.shared.tasks, peers, &endpoint);
        let id = info.session_id.clone();
        let refused = self.refusal(&info);
        if refused.is_some() {
            self.shared.config.transfer.metrics.registration_refused();
        }
        if let Some(why) = &refused
            && let Some(left_out) = self.shared.log.allows()
        {
            tracing::warn!(session = %id, why, left_out, "refused a registration");
        }
        let ack = self.register_ack(id.clone(), refused.clone());
        let _ = outbox.send(&ControlMessage::RegisterAck(Box::new(ack)));
        if refused.is_none() {
            let plan = TransferPlan::new(self.shared.end(), info_end(&info));
            let name = rank_name(&endpoint, info.rank);
            let metrics = self.shared.config.transfer.metrics.enter(&name);
            let this: Weak<Self> = Arc::downgrade(self);
            let remote = OutboundPeer::new(
                info,
                plan,
                outbox,
                metrics,
                this as Weak<dyn OutboundEvents>,
            );
            let peer = Arc::new(DecodePeer::new(&self.shared, remote, from));
            self.peers.lock().insert(id, Arc::clone(&peer));
            self.expect_liveness(peer);
        }
    }

    /// Registrations whose liveness connection has not come.
    fn unattached(&self) -> usize {
        let peers = self.peers.lock();
        peers.values().filter(|peer| !peer.is_attached()).count()
    }

    fn refusal(&self, info: &KvArgsRegisterInfo) -> Option<String> {
        if self.peers.lock().len() >= PEERS_MAX {
            return Some(format!("{PEERS_MAX} decode ranks are registered already"));
        }
        if let Err(error) = info.layout.validate() {
            return Some(format!("decode's KV layout: {error}"));
        }
        let own = KvMeaning {
            kv_compat: &self.shared.config.kv_compat,
            layout: &self.shared.config.kv.layout,
        };
        let decode = KvMeaning {
            kv_compat: &info.kv_compat,
            layout: &info.layout,
        };
        check_pair(own, decode).err().map(|error| error.to_string())
    }

    fn register_ack(&self, session_id: SessionId, refused: Option<String>) -> RegisterAck {
        let config = &self.shared.config;
        // One that is refused need not know where to go on.
        let is_refused = refused.is_some();
        RegisterAck {
            session_id,
            boot_id: config.boot_id.clone(),
            rank: config.rank,
            layout: config.kv.layout.clone(),
            kv_compat: config.kv_compat.clone(),
            liveness_port: if is_refused { 0 } else { self.liveness_port() },
            shm: self.shm.clone().filter(|_| !is_refused),
            tcp: config.transfer.transport.allows(Transport::Tcp),
            rdma: self.shared.fabric.is_some(),
            honours_prefix: true,
            refused,
        }
    }

    /// Without a liveness connection the peer could be gone unnoticed.
    fn expect_liveness(self: &Arc<Self>, peer: Arc<DecodePeer>) {
        let side = Arc::clone(self);
        self.shared.tasks.spawn("reaper", async move {
            tokio::select! {
                () = tokio::time::sleep(ATTACH_TIMEOUT) => {
                    if !peer.is_attached() {
                        let reason = "decode registered but opened no liveness connection";
                        side.lose(peer.id(), &FailureReason::peer(reason));
                    }
                }
                () = peer.remote.lost.cancelled() => {}
            }
        });
    }

    fn on_transfer_info(self: &Arc<Self>, info: TransferInfo) {
        let Some(peer) = self.peer(&info.session_id) else {
            return;
        };
        if let Err(reason) = check_offer(&peer, &info) {
            return refuse(&peer, &info, &reason);
        }
        peer.outbound.open(info.transport);
        let mut rooms = self.rooms.lock();
        let ended = rooms.ended(info.room).cloned();
        let open = rooms.open.get(&info.room).cloned();
        match (open, ended) {
            (Some(room), _) => {
                drop(rooms);
                self.join(&room, &peer, info);
            }
            (None, Some(how)) => {
                drop(rooms);
                let message = match how {
                    Ended::Used => format!("room {} was used before", info.room),
                    Ended::Aborted(reason) => reason,
                };
                refuse(&peer, &info, &FailureReason::peer(message));
            }
            (None, None) => {
                let ttl = self.shared.config.transfer.bootstrap_timeout;
                let kept = rooms.keep(&peer, info.clone(), Instant::now(), ttl);
                drop(rooms);
                if kept {
                    peer.remote.answer(&info, KvPoll::WaitingForInput, None);
                } else {
                    let reason = FailureReason::peer("too many rooms wait for their request");
                    refuse(&peer, &info, &reason);
                }
            }
        }
    }

    /// A decode rank and an open room meet.
    pub(crate) fn join(
        self: &Arc<Self>,
        room: &Arc<SenderRoom>,
        peer: &Arc<DecodePeer>,
        info: TransferInfo,
    ) {
        match room.add(peer, info.clone()) {
            Ok(all_in) => {
                peer.remote.answer(&info, KvPoll::WaitingForInput, None);
                if all_in {
                    self.bootstrapped(room);
                }
            }
            Err(reason) => refuse(peer, &info, &reason),
        }
    }

    fn on_status(&self, status: &Status) {
        let Some(room) = self.open_room(status.room) else {
            return;
        };
        if room.is_joined_by(&status.session_id, status.generation)
            && status.poll == KvPoll::Success
            && room.mark_done(&status.session_id)
        {
            room.succeed();
        }
    }

    fn on_abort(&self, abort: Abort) {
        let Abort {
            session_id,
            room: id,
            generation,
            reason,
        } = abort;
        let Some(peer) = self.peer(&session_id) else {
            return;
        };
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        let reason = format!("decode gave room {id} up: {reason}");
        match self.open_room(id) {
            Some(room) => {
                if room.may_be_aborted_by(&session_id, generation) {
                    self.fail(&room, FailureReason::peer(reason));
                }
            }
            None => {
                let mut rooms = self.rooms.lock();
                if rooms.ended(id).is_none() && rooms.may_be_aborted_by(id, &session_id) {
                    rooms.end(id, Ended::Aborted(reason));
                }
            }
        }
        // Where NICs write, they may not be done with what they hold.
        if !peer.outbound.on_abort(id, generation) {
            let ack = AbortAck {
                session_id,
                room: id,
                generation,
            };
            // Counted first: decode, which counts it too, may be read as soon as it has it.
            peer.remote.metrics.abort_answered();
            let _ = peer.remote.send(&ControlMessage::AbortAck(ack));
        }
    }
}

fn info_end(info: &KvArgsRegisterInfo) -> End<'_> {
    End {
        layout: &info.layout,
        parallel: &info.parallel,
        rank: info.rank,
    }
}

/// What a room names must lie within the memory that the decode rank registered.
fn check_offer(peer: &DecodePeer, info: &TransferInfo) -> Result<(), FailureReason> {
    if info.is_dummy {
        return Ok(());
    }
    let (layout, pages) = (&peer.remote.info.layout, &info.page_indices);
    items::check_pages(layout, pages)
        .and_then(|()| items::check_row(layout, info.metadata_buffer_index))
        .and_then(|()| items::request_pages(layout, info.decode_prefix_len, pages.len()))
        .and_then(|pages| items::check_states(layout, &info.state_indices, pages))
        .map_err(|what| FailureReason::peer(format!("room {}: decode offers {what}", info.room)))
}
