//! What comes in on decode. `locate_frame` (tcp) and `locate_pulled` (shm) say where bytes go: always derived
//! from what this side offered, never from addresses that a peer names. What is in place is counted:
//! `part_arrived` a frame or a chunk, `rank_arrived` (rdma) all of a prefill rank at once. With the last of it
//! `complete` checks the metadata row, sets `Success` and reports it to prefill.

mod pulled;
mod written;

use super::DecodeSide;
use super::prefill_peer::PrefillPeer;
use super::room::{Arrival, ReceiverRoom};
use crate::failure::FailureReason;
use crate::fault_injection::FaultPoint;
use crate::plan::OwnedTail;
use crate::plan::{CopyRange, Span};
use crate::transport::incoming::{InboundRooms, IncomingPart};
use crate::transport::tcp::frame::FrameHeader;
use pd_protocol::control::{ChunkReady, ControlMessage, SessionId, Status};
use pd_protocol::{BootstrapRoom, KvPoll};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a peer announces of a part.
struct Announced<'a> {
    room: BootstrapRoom,
    generation: pd_protocol::control::Generation,
    session_id: &'a SessionId,
    first_page: u32,
    page_count: usize,
    last: bool,
}

/// What this side offered for it.
struct Offered {
    room: Arc<ReceiverRoom>,
    peer: Arc<PrefillPeer>,
    pages: Vec<u32>,
    tail: Option<OwnedTail>,
    /// Of the whole room.
    request_pages: usize,
}

impl InboundRooms for DecodeSide {
    fn locate_frame(
        self: Arc<Self>,
        session_id: &SessionId,
        header: &FrameHeader,
    ) -> Option<IncomingPart> {
        let announced = Announced {
            room: header.room,
            generation: header.generation,
            session_id,
            first_page: header.first_page,
            page_count: header.page_count as usize,
            last: header.last,
        };
        let Offered {
            room,
            peer,
            pages,
            tail,
            ..
        } = self.offered(&announced)?;
        let mut spans = peer.plan.dst_page_spans(&pages);
        let parts = peer.plan.page_parts(pages.len());
        peer.remote
            .metrics
            .planned(peer.remote.transport, parts, spans.len());
        if let Some(tail) = &tail {
            spans.extend(peer.plan.dst_tail_spans(tail.as_tail()));
        }
        let expected: u64 = spans.iter().map(|span| span.len).sum();
        if expected != header.payload_bytes {
            let message = format!(
                "room {}: prefill sent {} bytes where {expected} were expected",
                room.id, header.payload_bytes
            );
            self.fail(&room, FailureReason::peer(message));
            return None;
        }
        Some(announced.incoming(room, expected, spans, Vec::new()))
    }

    fn locate_chunk(self: Arc<Self>, ready: &ChunkReady) -> Option<IncomingPart> {
        self.locate_pulled(ready)
    }

    fn peer_lost(self: Arc<Self>, session_id: &SessionId, reason: &FailureReason) {
        if let Some(peer) = self.peer(session_id) {
            self.lose(&peer, reason);
        }
    }
}

impl DecodeSide {
    fn offered(self: &Arc<Self>, announced: &Announced<'_>) -> Option<Offered> {
        let room = self.open_room(announced.room)?;
        if room.generation != announced.generation || room.progress.poll().is_terminal() {
            return None;
        }
        let found = {
            let mut state = room.state.lock();
            let peer = Arc::clone(&state.source(announced.session_id)?.peer);
            let offer = state.offer.as_ref()?;
            let first = announced.first_page as usize;
            let pages = offer.page_indices.get(first..first + announced.page_count);
            let tail = announced.last.then(|| OwnedTail {
                state_indices: offer.state_indices.as_slice().into(),
                metadata_buffer_index: offer.metadata_buffer_index,
            });
            let prefix_pages = offer.decode_prefix_len / self.shared.config.kv.layout.page_size;
            let request_pages = prefix_pages as usize + offer.page_indices.len();
            let found = pages.map(|pages| (peer, pages.to_vec(), tail, request_pages));
            state.start();
            found
        };
        let Some((peer, pages, tail, request_pages)) = found else {
            let message = format!("room {}: prefill sent pages beyond those offered", room.id);
            self.fail(&room, FailureReason::peer(message));
            return None;
        };
        peer.proven.store(true, Ordering::Relaxed);
        room.progress.advance_quietly(KvPoll::Transferring);
        Some(Offered {
            room,
            peer,
            pages,
            tail,
            request_pages,
        })
    }

    /// A part is in place (tcp, shm).
    pub(super) fn part_arrived(self: &Arc<Self>, room: &Arc<ReceiverRoom>, part: &IncomingPart) {
        let arrival = room.state.lock().count_arrival(
            &part.session_id,
            (part.first_page, part.page_count),
            part.last,
            part.bytes,
        );
        self.on_arrival(room, arrival);
    }

    fn on_arrival(self: &Arc<Self>, room: &Arc<ReceiverRoom>, arrival: Arrival) {
        match arrival {
            Arrival::More => room.progress.announce(),
            Arrival::Complete => self.complete(room),
            Arrival::Unexpected => {
                let message = format!(
                    "room {}: prefill sent pages twice, or pages that were not offered",
                    room.id
                );
                self.fail(room, FailureReason::peer(message));
            }
        }
    }

    /// Every part of every prefill rank is in place: the row must be this room's.
    fn complete(self: &Arc<Self>, room: &Arc<ReceiverRoom>) {
        if let Some(point @ FaultPoint::Transfer) = room.fault_point {
            self.fail(room, point.reason(room.id));
            return;
        }
        let row = {
            let state = room.state.lock();
            state
                .offer
                .as_ref()
                .map(|offer| offer.metadata_buffer_index)
        };
        let row = row.expect("a room without an offer receives nothing");
        let metadata = &self.shared.config.kv.metadata;
        if let Err(error) = metadata.read_row(row, room.id) {
            let message = format!("corrupt transfer: {error}");
            self.fail(room, FailureReason::peer(message));
            return;
        }
        room.fence.close();
        room.progress
            .advance_with(KvPoll::Success, || confirm(room));
    }
}

/// Reports to every prefill rank that the room has everything.
fn confirm(room: &ReceiverRoom) {
    for source in &room.state.lock().sources {
        let status = ControlMessage::Status(Status {
            session_id: source.peer.remote.session_id.clone(),
            room: room.id,
            generation: room.generation,
            poll: KvPoll::Success,
            reason: None,
        });
        if let Err(error) = source.peer.remote.outbox.send(&status) {
            tracing::warn!(room = %room.id, %error, "could not confirm success to prefill");
        }
    }
}

impl Announced<'_> {
    fn incoming(
        &self,
        room: Arc<ReceiverRoom>,
        bytes: u64,
        spans: Vec<Span>,
        copies: Vec<CopyRange>,
    ) -> IncomingPart {
        IncomingPart {
            room,
            session_id: self.session_id.clone(),
            first_page: self.first_page as usize,
            page_count: self.page_count,
            last: self.last,
            bytes,
            spans,
            copies,
        }
    }
}
