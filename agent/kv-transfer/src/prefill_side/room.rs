//! One room on prefill: the decode ranks that want it and what has left for them.

use super::PrefillSide;
use super::decode_peer::DecodePeer;
use crate::clock::{self, Instant};
use crate::config::Waker;
use crate::failure::FailureReason;
use crate::fault_injection::FaultPoint;
use crate::fence::Fence;
use crate::metrics::FenceMetrics;
use crate::progress::Progress;
use crate::sender::ChunkReport;
use crate::transport::outgoing::OutboundRoom;
use crate::transport::shm::lease::Lease;
use parking_lot::Mutex;
use pd_protocol::control::{Generation, SessionId, TransferInfo};
use pd_protocol::{BootstrapRoom, KvPoll};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) struct SenderRoom {
    pub(crate) id: BootstrapRoom,
    pub(crate) fake: bool,
    pub(crate) progress: Progress,
    pub(crate) fence: Fence,
    /// Where the room fails on purpose.
    pub(crate) fault_point: Option<FaultPoint>,
    pub(crate) state: Mutex<SenderState>,
    reports: Mutex<Vec<ChunkReport>>,
    side: Weak<PrefillSide>,
}

#[derive(Default)]
pub(crate) struct SenderState {
    pub(crate) page_count: Option<usize>,
    pub(crate) metadata_buffer_index: Option<u32>,
    pub(crate) sent_pages: usize,
    /// When the last chunk was handed over.
    pub(crate) last_sent: Option<Instant>,
    pub(crate) destinations: Vec<Destination>,
    /// Set once: nothing may be sent after it.
    pub(crate) ended: bool,
    pub(super) lease: Option<Lease>,
}

/// A decode rank and its `TransferInfo`.
pub(crate) struct Destination {
    pub(crate) peer: Arc<DecodePeer>,
    pub(crate) info: TransferInfo,
    /// Pages of the request that it has already; those that it offers follow them.
    pub(crate) prefix_pages: usize,
    pub(crate) done: bool,
}

impl SenderRoom {
    pub(crate) fn new(
        side: &Arc<PrefillSide>,
        (id, fake): (BootstrapRoom, bool),
        fault_point: Option<FaultPoint>,
        (waker, fences): (&Waker, &FenceMetrics),
    ) -> Self {
        Self {
            id,
            fake,
            progress: Progress::new(Arc::clone(waker)),
            fence: Fence::new(Arc::clone(waker), fences.clone()),
            fault_point,
            state: Mutex::default(),
            reports: Mutex::default(),
            side: Arc::downgrade(side),
        }
    }

    /// Whether a session may give the room up: as long as no decode rank has joined it, any; then only one of those, and
    /// for the attempt that it joined for.
    pub(crate) fn may_be_aborted_by(&self, session_id: &SessionId, generation: Generation) -> bool {
        self.state.lock().may_be_aborted_by(session_id, generation)
    }

    /// Whether a session is of a decode rank that has joined, for this attempt.
    pub(crate) fn is_joined_by(&self, session_id: &SessionId, generation: Generation) -> bool {
        self.state.lock().is_joined_by(session_id, generation)
    }

    /// Adds a decode rank, or recognises it. True when every rank that was asked for is in.
    pub(crate) fn add(
        &self,
        peer: &Arc<DecodePeer>,
        info: TransferInfo,
    ) -> Result<bool, FailureReason> {
        let mut state = self.state.lock();
        if state.ended {
            let ended = || FailureReason::peer(format!("room {} has ended", self.id));
            return Err(self.progress.failure().unwrap_or_else(ended));
        }
        let known = state.destinations.iter().find(|d| d.peer.id() == peer.id());
        match known.map(|known| known.info.generation) {
            Some(generation) if generation == info.generation => {}
            Some(_) => {
                let message = format!("room {} is in use by another request", self.id);
                return Err(FailureReason::peer(message));
            }
            None => {
                let page_size = peer.remote.info.layout.page_size;
                let destination = Destination {
                    peer: Arc::clone(peer),
                    prefix_pages: (info.decode_prefix_len / page_size) as usize,
                    info,
                    done: false,
                };
                state.check_pages(self.id, &destination)?;
                state.destinations.push(destination);
            }
        }
        let required = state
            .destinations
            .iter()
            .map(|d| d.info.required_dst_info_num);
        let required = required.max().unwrap_or(1).max(1) as usize;
        Ok(state.destinations.len() >= required)
    }

    /// The decode rank of `session_id` has everything; true when all have.
    pub(crate) fn mark_done(&self, session_id: &SessionId) -> bool {
        let mut state = self.state.lock();
        for destination in &mut state.destinations {
            destination.done |= destination.peer.id() == session_id;
        }
        state.is_done()
    }

    /// Ends the room's reads and writes and moves its lease on; the pages may be used again as soon
    /// as the fence is released.
    pub(crate) fn close(&self) {
        let lease = {
            let mut state = self.state.lock();
            state.ended = true;
            state.lease.take()
        };
        drop(lease);
        self.fence.close();
    }

    pub(crate) fn succeed(&self) {
        self.close();
        self.progress.advance(KvPoll::Success);
    }

    pub(crate) fn take_reports(&self) -> Vec<ChunkReport> {
        std::mem::take(&mut self.reports.lock())
    }
}

impl OutboundRoom for SenderRoom {
    fn id(&self) -> BootstrapRoom {
        self.id
    }

    fn fence(&self) -> &Fence {
        &self.fence
    }

    fn report(&self, bytes: u64, duration: Duration, last: bool) {
        let at_unix_ns = clock::unix_ns();
        self.reports.lock().push(ChunkReport {
            bytes,
            duration,
            at_unix_ns,
            last,
        });
    }

    fn fail(&self, reason: FailureReason) {
        if let Some(side) = self.side.upgrade() {
            side.fail(self, reason);
        }
    }
}

impl SenderState {
    fn may_be_aborted_by(&self, session_id: &SessionId, generation: Generation) -> bool {
        self.destinations.is_empty() || self.is_joined_by(session_id, generation)
    }

    fn is_joined_by(&self, session_id: &SessionId, generation: Generation) -> bool {
        let mut joined = self.destinations.iter();
        joined.any(|d| d.peer.id() == session_id && d.info.generation == generation)
    }

    /// The decode ranks must have or offer as many pages as the request has.
    fn check_pages(
        &self,
        room: BootstrapRoom,
        destination: &Destination,
    ) -> Result<(), FailureReason> {
        let Destination {
            info, prefix_pages, ..
        } = destination;
        let offered = info.page_indices.len();
        match self.page_count {
            Some(promised) if !info.is_dummy && promised != prefix_pages + offered => {
                let has = match prefix_pages {
                    0 => String::new(),
                    pages => format!(" behind {pages} that it has"),
                };
                Err(FailureReason::peer(format!(
                    "room {room}: decode offers {offered} pages{has}, but the request has {promised}; \
                     do both sides see the same prompt?"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Takes over what `init` says.
    pub(crate) fn init(
        &mut self,
        room: BootstrapRoom,
        page_count: usize,
        metadata_buffer_index: u32,
    ) -> Result<(), FailureReason> {
        self.page_count = Some(page_count);
        self.metadata_buffer_index = Some(metadata_buffer_index);
        let mut destinations = self.destinations.iter();
        destinations.try_for_each(|destination| self.check_pages(room, destination))
    }

    /// Some decode rank needs bytes of this rank.
    pub(crate) fn brings_something(&self) -> bool {
        self.destinations.iter().any(|d| !d.info.is_dummy)
    }

    /// Every decode rank has everything, and the last chunk was handed over.
    pub(crate) fn is_done(&self) -> bool {
        self.last_sent.is_some() && self.destinations.iter().all(|d| d.done || d.info.is_dummy)
    }
}
