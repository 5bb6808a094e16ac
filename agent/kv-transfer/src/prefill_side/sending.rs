//! Checks what the engine hands over and sends it to every decode rank.

use super::PrefillSide;
use super::room::{Destination, SenderRoom, SenderState};
use crate::clock::Instant;
use crate::failure::FailureReason;
use crate::fault_injection::FaultPoint;
use crate::items;
use crate::plan::OwnedTail;
use crate::sender::LastChunk;
use crate::transport::outgoing::OutboundChunk;
use pd_protocol::KvPoll;
use std::sync::Arc;

impl PrefillSide {
    pub(crate) fn init(&self, room: &SenderRoom, page_count: usize, metadata_buffer_index: u32) {
        let taken = room
            .state
            .lock()
            .init(room.id, page_count, metadata_buffer_index);
        if let Err(reason) = taken {
            self.fail(room, reason);
        }
    }

    pub(crate) fn send(
        &self,
        room: &Arc<SenderRoom>,
        page_indices: &[u32],
        last: Option<LastChunk>,
    ) {
        let is_last = last.is_some();
        let fails = is_last && room.fault_point == Some(FaultPoint::Transfer);
        // A rank that brings nothing has nothing that could fail.
        if fails && (room.fake || room.state.lock().brings_something()) {
            self.fail(room, FaultPoint::Transfer.reason(room.id));
            return;
        }
        let sent = {
            let mut state = room.state.lock();
            if state.ended {
                return;
            }
            self.send_chunk(room, &mut state, page_indices, last)
        };
        match sent {
            Err(reason) => {
                self.fail(room, reason);
            }
            // A fake room, and one that no decode rank needs bytes of, is done here.
            Ok(true) => room.succeed(),
            Ok(false) => {}
        }
    }

    /// Sends a chunk to every destination; true if the room is done with it.
    fn send_chunk(
        &self,
        room: &Arc<SenderRoom>,
        state: &mut SenderState,
        page_indices: &[u32],
        last: Option<LastChunk>,
    ) -> Result<bool, FailureReason> {
        let chunk = self.checked_chunk(room, state, page_indices, last)?;
        // The engine knows, and no task waits for it.
        room.progress.advance_quietly(KvPoll::Transferring);
        if chunk.pages.is_empty() && chunk.tail.is_none() {
            return Ok(false);
        }
        let SenderState {
            destinations,
            lease,
            ..
        } = state;
        for destination in destinations.iter() {
            if destination.info.is_dummy {
                continue;
            }
            self.check_items(room, destination, &chunk)?;
            let Destination {
                peer,
                info,
                prefix_pages,
                ..
            } = destination;
            if chunk.tail.is_some() {
                let skipped = peer.remote.plan.page_bytes() * *prefix_pages as u64;
                self.shared.config.transfer.metrics.skipped(skipped);
            }
            if let Some(chunk) = chunk.behind(*prefix_pages) {
                let lease = || SenderState::hold_lease(lease, &self.leases);
                peer.outbound.send(room, info, &chunk, lease)?;
            }
        }
        Ok(state.is_done())
    }

    fn checked_chunk(
        &self,
        room: &SenderRoom,
        state: &mut SenderState,
        page_indices: &[u32],
        last: Option<LastChunk>,
    ) -> Result<OutboundChunk, FailureReason> {
        let misuse = |what: String| {
            Err(FailureReason::application(format!(
                "room {}: {what}",
                room.id
            )))
        };
        if room.progress.poll() == KvPoll::Bootstrapping {
            return misuse("send came before decode's TransferInfo".to_owned());
        }
        let (Some(promised), Some(row)) = (state.page_count, state.metadata_buffer_index) else {
            return misuse("send came before init".to_owned());
        };
        let layout = &self.shared.config.kv.layout;
        let named = items::check_pages(layout, page_indices);
        let named = named.and_then(|()| match &last {
            Some(last) => items::check_states(layout, &last.state_indices, promised),
            None => Ok(()),
        });
        if let Err(what) = named {
            return misuse(format!("send names {what}"));
        }
        let first_page = state.sent_pages;
        state.sent_pages += page_indices.len();
        let sent = state.sent_pages;
        if sent > promised || (last.is_some() && sent != promised) || state.last_sent.is_some() {
            return misuse(format!(
                "{sent} pages were sent, but init promised {promised}"
            ));
        }
        state.last_sent = last.is_some().then(Instant::now);
        Ok(OutboundChunk {
            first_page: u32::try_from(first_page).expect("a page list fits u32"),
            pages: page_indices.into(),
            tail: last.map(|last| OwnedTail {
                state_indices: last.state_indices.into(),
                metadata_buffer_index: row,
            }),
        })
    }

    /// Decode must have room for as many items of each state.
    fn check_items(
        &self,
        room: &SenderRoom,
        destination: &Destination,
        chunk: &OutboundChunk,
    ) -> Result<(), FailureReason> {
        let Some(tail) = &chunk.tail else {
            return Ok(());
        };
        let (layout, there) = (
            &self.shared.config.kv.layout,
            &destination.info.state_indices,
        );
        items::check_equal(layout, &tail.state_indices, there)
            .map_err(|what| FailureReason::peer(format!("room {}: prefill sends {what}", room.id)))
    }
}
