//! How decode handles control messages, and what it sends prefill when a room fails.

use super::DecodeSide;
use super::prefill_peer::PrefillPeer;
use super::room::ReceiverRoom;
use crate::control::outbox::Outbox;
use crate::failure::FailureReason;
use pd_identity::PeerId;
use pd_protocol::KvPoll;
use pd_protocol::control::{Abort, AbortAck, ControlMessage, RegisterAck, SessionId, Status};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl DecodeSide {
    pub(crate) fn handle(self: &Arc<Self>, message: ControlMessage, from: Option<PeerId>) {
        let known = self.peer(message.session_id());
        if known.is_some_and(|peer| peer.process != from) {
            tracing::debug!(session = %message.session_id(), "dropped a message of another process than the session's");
            return;
        }
        match message {
            ControlMessage::RegisterAck(ack) => self.on_register_ack(*ack, from),
            ControlMessage::ChunkReady(ready) => self.on_chunk_ready(ready),
            ControlMessage::Status(status) => self.on_status(status),
            ControlMessage::AbortAck(ack) => self.on_abort_ack(&ack),
            ControlMessage::RailOffer(offer) => {
                let outbox = self.outbox(&offer.session_id);
                self.rails.on_offer(*offer, outbox.as_ref());
            }
            ControlMessage::RailDown(down) => {
                let outbox = self.outbox(&down.session_id);
                self.rails.on_down(down, outbox.as_ref());
            }
            ControlMessage::Register(_)
            | ControlMessage::RailsWanted(_)
            | ControlMessage::RailAnswer(_)
            | ControlMessage::RailClosed(_)
            | ControlMessage::TransferInfo(_)
            | ControlMessage::ChunkDone(_)
            | ControlMessage::Abort(_) => {
                if let Some(left_out) = self.shared.log.allows() {
                    tracing::warn!(left_out, "dropped a message for prefill");
                }
            }
        }
    }

    fn on_register_ack(&self, ack: RegisterAck, from: Option<PeerId>) {
        if let Some(waiting) = self.registering.lock().remove(&ack.session_id) {
            // The caller may have run out of time.
            let _ = waiting.send((ack, from));
        }
    }

    /// The control queue to a prefill peer.
    fn outbox(&self, session_id: &SessionId) -> Option<Outbox> {
        let peer = self.peer(session_id)?;
        Some(peer.remote.outbox.clone())
    }

    pub(super) fn peer(&self, session_id: &SessionId) -> Option<Arc<PrefillPeer>> {
        self.peers.lock().get(session_id).cloned()
    }

    fn on_status(self: &Arc<Self>, status: Status) {
        let Some(room) = self.open_room(status.room) else {
            return;
        };
        if room.generation != status.generation {
            return;
        }
        {
            let mut state = room.state.lock();
            let Some(source) = state.source(&status.session_id) else {
                return;
            };
            source.answered = true;
            if status.poll == KvPoll::Transferring {
                source.peer.proven.store(true, Ordering::Relaxed);
                state.start();
            }
        }
        if status.poll == KvPoll::Transferring {
            room.progress.advance(KvPoll::Transferring);
        }
        if status.poll == KvPoll::Failed {
            let reason = status
                .reason
                .unwrap_or_else(|| "no reason given".to_owned());
            let message = format!("prefill failed room {}: {reason}", room.id);
            self.fail(&room, FailureReason::peer(message));
        }
    }

    fn on_abort_ack(&self, ack: &AbortAck) {
        let closed =
            |room: &&Arc<ReceiverRoom>| room.id == ack.room && room.generation == ack.generation;
        let open = self.open_room(ack.room).filter(|room| closed(&room));
        let aborting = self.aborting.lock().iter().find(closed).cloned();
        let Some(room) = open.or(aborting) else {
            return;
        };
        let peer = room.state.lock().acknowledge_abort(&ack.session_id);
        if let Some(peer) = peer {
            peer.remote.metrics.abort_answered();
            peer.writes_no_more(&room);
        }
    }

    /// Fails a room, closes its fence and notifies prefill; false if it had ended before.
    pub(crate) fn fail(self: &Arc<Self>, room: &Arc<ReceiverRoom>, reason: FailureReason) -> bool {
        if room.progress.poll().is_terminal() {
            return false;
        }
        room.fence.close();
        let (text, layer) = (reason.to_string(), reason.layer);
        let Some(stage) = room.progress.fail(reason) else {
            return false;
        };
        let metrics = &self.shared.config.transfer.metrics;
        metrics.room_failed(stage, layer);
        if !room.state.lock().sources.is_empty() {
            let (side, room) = (Arc::clone(self), Arc::clone(room));
            let aborting = side.abort_until_answered(room, text);
            self.shared.tasks.spawn("abort", aborting);
        }
        true
    }

    /// Sends every prefill rank of the room an abort, again until each has
    /// answered or is gone. Our own memory is fenced already; this frees prefill's.
    async fn abort_until_answered(self: Arc<Self>, room: Arc<ReceiverRoom>, reason: String) {
        self.aborting.lock().push(Arc::clone(&room));
        for peer in unanswered_aborts(&room) {
            peer.remote.metrics.abort_sent();
        }
        loop {
            let waiting = unanswered_aborts(&room);
            if waiting.is_empty() {
                break;
            }
            for peer in waiting {
                let abort = ControlMessage::Abort(Abort {
                    session_id: peer.remote.session_id.clone(),
                    room: room.id,
                    generation: room.generation,
                    reason: reason.clone(),
                });
                // A full outbox empties, or the peer is lost: both are seen next time.
                let _ = peer.remote.outbox.send(&abort);
            }
            tokio::time::sleep(self.shared.config.transfer.resend_interval).await;
        }
        self.aborting
            .lock()
            .retain(|other| !Arc::ptr_eq(other, &room));
    }
}

fn unanswered_aborts(room: &ReceiverRoom) -> Vec<Arc<PrefillPeer>> {
    let state = room.state.lock();
    let waiting = state.sources.iter();
    let waiting =
        waiting.filter(|source| !source.abort_acked && !source.peer.remote.lost.is_cancelled());
    waiting.map(|source| Arc::clone(&source.peer)).collect()
}
