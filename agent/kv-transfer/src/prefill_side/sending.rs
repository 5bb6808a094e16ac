//! What the engine hands over, and how it leaves.

use super::PrefillSide;
use super::room::{ChunkMeter, Destination, SenderRoom, SenderState};
use crate::failure::FailureReason;
use crate::fault_injection::FaultPoint;
use crate::items;
use crate::plan::Tail;
use crate::sender::LastChunk;
use crate::transport::OwnedTail;
use crate::transport::rdma::writer::Job;
use crate::transport::tcp::writer::{FrameJob, frame_ranges};
use pd_protocol::KvPoll;
use pd_protocol::Transport;
use pd_protocol::control::chunk::LastPull;
use pd_protocol::control::{ChunkReady, ControlMessage};
use std::sync::Arc;

/// A chunk, checked against what `init` promised.
struct Chunk {
    first_page: u32,
    pages: Arc<[u32]>,
    tail: Option<OwnedTail>,
}

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
            Ok(false) if is_last => room.last_sent.notify_one(),
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
        room.progress.advance(KvPoll::Transferring);
        if chunk.pages.is_empty() && chunk.tail.is_none() {
            return Ok(false);
        }
        for i in 0..state.destinations.len() {
            let destination = &state.destinations[i];
            if destination.info.is_dummy {
                continue;
            }
            self.check_items(room, destination, &chunk)?;
            match destination.info.transport {
                Transport::Tcp => push(room, destination, &chunk)?,
                Transport::Rdma => write(room, destination, &chunk)?,
                Transport::Shm => self.offer(room, state, i, &chunk)?,
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
    ) -> Result<Chunk, FailureReason> {
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
        if sent > promised || (last.is_some() && sent != promised) || state.last_sent {
            return misuse(format!(
                "{sent} pages were sent, but init promised {promised}"
            ));
        }
        state.last_sent = last.is_some();
        Ok(Chunk {
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
        chunk: &Chunk,
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

    /// Offers a chunk to a decode rank that pulls.
    fn offer(
        &self,
        room: &SenderRoom,
        state: &mut SenderState,
        destination: usize,
        chunk: &Chunk,
    ) -> Result<(), FailureReason> {
        let Some((lease_idx, lease)) = state.lease(&self.leases) else {
            let message = format!("room {}: every lease is in use", room.id);
            return Err(FailureReason::application(message));
        };
        let Destination { session, info, .. } = &state.destinations[destination];
        let ready = ControlMessage::ChunkReady(ChunkReady {
            session_id: session.id().clone(),
            room: room.id,
            generation: info.generation,
            lease_idx,
            lease,
            first_page: chunk.first_page,
            last: chunk.tail.as_ref().map(|tail| LastPull {
                metadata_buffer_index: tail.metadata_buffer_index,
            }),
            page_indices: chunk.pages.to_vec(),
            state_indices: chunk
                .tail
                .as_ref()
                .map_or_else(Vec::new, |tail| tail.state_indices.to_vec()),
        });
        session
            .send(&ready)
            .map_err(|error| FailureReason::network(format!("room {}: {error}", room.id)))
    }
}

/// Queues a chunk's writes into a decode rank's memory.
fn write(
    room: &Arc<SenderRoom>,
    destination: &Destination,
    chunk: &Chunk,
) -> Result<(), FailureReason> {
    let Destination { session, info, .. } = destination;
    let first = chunk.first_page as usize;
    let to = info.page_indices.get(first..first + chunk.pages.len());
    let to = to.ok_or_else(|| {
        let message = format!("room {}: decode offers too few pages", room.id);
        FailureReason::peer(message)
    })?;
    let mut ranges = session.plan.page_ranges(&chunk.pages, to);
    let parts = session.plan.page_parts(chunk.pages.len());
    session.metrics.planned(info.transport, parts, ranges.len());
    if let Some(tail) = &chunk.tail {
        let to = Tail {
            state_indices: &info.state_indices,
            metadata_buffer_index: info.metadata_buffer_index,
        };
        ranges.extend(session.plan.tail_ranges(tail.as_tail(), to));
    }
    let queued = session.write(Job {
        room: Arc::clone(room),
        info: info.clone(),
        ranges,
        last: chunk.tail.is_some(),
    });
    if queued {
        return Ok(());
    }
    let message = format!("room {}: its rails are backed up or gone", room.id);
    Err(FailureReason::network(message))
}

/// Queues a chunk's frames to a decode rank that is pushed to.
fn push(
    room: &Arc<SenderRoom>,
    destination: &Destination,
    chunk: &Chunk,
) -> Result<(), FailureReason> {
    let Destination { session, info, .. } = destination;
    let ranges = frame_ranges(chunk.pages.len(), session.plan.page_bytes());
    let meter = Arc::new(ChunkMeter::new(ranges.len(), chunk.tail.is_some()));
    let count = ranges.len();
    for (i, range) in ranges.into_iter().enumerate() {
        let queued = session.push(FrameJob {
            room: Arc::clone(room),
            generation: info.generation,
            first_page: chunk.first_page,
            pages: Arc::clone(&chunk.pages),
            range,
            tail: chunk.tail.clone().filter(|_| i + 1 == count),
            meter: Arc::clone(&meter),
        });
        if !queued {
            let message = format!("room {}: the data connections are backed up", room.id);
            return Err(FailureReason::network(message));
        }
    }
    Ok(())
}
