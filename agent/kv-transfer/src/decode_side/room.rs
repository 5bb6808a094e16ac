//! One room on decode: what it offers, whom it waits for, what has arrived.

use super::DecodeSide;
use super::prefill_peer::PrefillPeer;
use crate::clock::Instant;
use crate::config::{BootstrapAddr, Waker};
use crate::failure::FailureReason;
use crate::fault_injection::FaultPoint;
use crate::fence::Fence;
use crate::metrics::FenceMetrics;
use crate::progress::Progress;
use crate::ranks::SourceRank;
use crate::receiver::TransferReport;
use crate::transport::incoming::{InboundRoom, IncomingPart};
use parking_lot::Mutex;
use pd_protocol::BootstrapRoom;
use pd_protocol::control::{Generation, SessionId};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

pub(crate) struct ReceiverRoom {
    pub(crate) id: BootstrapRoom,
    pub(crate) generation: Generation,
    pub(crate) bootstrap_addr: BootstrapAddr,
    pub(crate) prefill_dp_rank: Option<u32>,
    pub(crate) fake: bool,
    pub(crate) progress: Progress,
    pub(crate) fence: Fence,
    /// Where the room fails on purpose.
    pub(crate) fault_point: Option<FaultPoint>,
    pub(crate) offered: Notify,
    pub(crate) state: Mutex<ReceiverState>,
    side: Weak<DecodeSide>,
}

#[derive(Default)]
pub(crate) struct ReceiverState {
    pub(crate) offer: Option<OfferedMemory>,
    pub(crate) sources: Vec<PrefillSource>,
    started: Option<Instant>,
    report: Option<TransferReport>,
}

/// A receiver's memory: its own while the room lives, and given back when its fence is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedMemory {
    pub room: BootstrapRoom,
    /// Tokens that are here already; the pages follow them.
    pub decode_prefix_len: u32,
    pub page_indices: Vec<u32>,
    pub metadata_buffer_index: u32,
    /// Items of each state of the layout.
    pub state_indices: Vec<Vec<u32>>,
}

/// A prefill rank that this room waits for.
pub(crate) struct PrefillSource {
    pub(crate) peer: Arc<PrefillPeer>,
    /// It has nothing of what is offered; it only has to know.
    pub(crate) is_dummy: bool,
    /// How many decode ranks it must hear of.
    pub(crate) required_dst_info_num: u32,
    /// It has answered our TransferInfo.
    pub(crate) answered: bool,
    /// It has answered our Abort.
    pub(crate) abort_acked: bool,
    arrived: Vec<bool>,
    tail_arrived: bool,
}

/// What became of a part that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    More,
    Complete,
    /// Pages that had arrived before or were not offered, or a rank that the room does not wait for.
    Unexpected,
}

impl ReceiverRoom {
    pub(crate) fn new(
        side: &Arc<DecodeSide>,
        id: BootstrapRoom,
        generation: Generation,
        origin: (BootstrapAddr, Option<u32>),
        (fake, fault_point): (bool, Option<FaultPoint>),
        (waker, fences): (&Waker, &FenceMetrics),
    ) -> Self {
        let (bootstrap_addr, prefill_dp_rank) = origin;
        Self {
            id,
            generation,
            bootstrap_addr,
            prefill_dp_rank,
            fake,
            progress: Progress::new(Arc::clone(waker)),
            fence: Fence::new(Arc::clone(waker), fences.clone()),
            fault_point,
            offered: Notify::new(),
            state: Mutex::default(),
            side: Arc::downgrade(side),
        }
    }

    pub(crate) fn report(&self) -> Option<TransferReport> {
        self.state.lock().report
    }

    pub(crate) fn waits_for(&self, session_id: &SessionId) -> bool {
        let state = self.state.lock();
        let mut sources = state.sources.iter();
        sources.any(|s| &s.peer.remote.session_id == session_id && !s.is_done())
    }
}

impl InboundRoom for ReceiverRoom {
    fn id(&self) -> BootstrapRoom {
        self.id
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn fence(&self) -> &Fence {
        &self.fence
    }

    fn announce(&self) {
        self.progress.announce();
    }

    fn fail(self: Arc<Self>, reason: FailureReason) {
        if let Some(side) = self.side.upgrade() {
            side.fail(&self, reason);
        }
    }

    fn part_arrived(self: Arc<Self>, part: &IncomingPart) {
        if let Some(side) = self.side.upgrade() {
            side.part_arrived(&self, part);
        }
    }

    fn rank_arrived(self: Arc<Self>, session_id: &SessionId) {
        if let Some(side) = self.side.upgrade() {
            side.rank_arrived(&self, session_id);
        }
    }
}

impl ReceiverState {
    pub(crate) fn source(&mut self, session_id: &SessionId) -> Option<&mut PrefillSource> {
        let mut sources = self.sources.iter_mut();
        sources.find(|source| &source.peer.remote.session_id == session_id)
    }

    /// A prefill rank has answered the abort, for the first time.
    pub(crate) fn acknowledge_abort(&mut self, session_id: &SessionId) -> Option<Arc<PrefillPeer>> {
        let source = self.source(session_id)?;
        let is_news = !std::mem::replace(&mut source.abort_acked, true);
        is_news.then(|| Arc::clone(&source.peer))
    }

    /// Adds a prefill rank, before or after the offer.
    pub(crate) fn wait_for(&mut self, peer: Arc<PrefillPeer>, rank: &SourceRank) {
        let mut source = PrefillSource {
            peer,
            is_dummy: false,
            required_dst_info_num: rank.required_dst_info_num,
            answered: false,
            abort_acked: false,
            arrived: Vec::new(),
            tail_arrived: false,
        };
        if let Some(offer) = &self.offer {
            source.expect(offer.page_indices.len());
        }
        self.sources.push(source);
    }

    /// Whether all prefill ranks do.
    pub(crate) fn honours_prefix(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.all(|source| source.peer.honours_prefix)
    }

    /// Takes the memory that is offered.
    pub(crate) fn offer(&mut self, offer: OfferedMemory) {
        for source in &mut self.sources {
            source.expect(offer.page_indices.len());
        }
        self.offer = Some(offer);
    }

    /// The first byte is on its way.
    pub(crate) fn start(&mut self) {
        self.started.get_or_insert_with(Instant::now);
    }

    /// Counts pages `first..first + count` (and the tail) of one prefill rank.
    pub(crate) fn count_arrival(
        &mut self,
        session_id: &SessionId,
        (first, count): (usize, usize),
        last: bool,
        bytes: u64,
    ) -> Arrival {
        let Some(source) = self.source(session_id) else {
            return Arrival::Unexpected;
        };
        if !source.mark_arrived(first, count, last) {
            return Arrival::Unexpected;
        }
        let started = *self.started.get_or_insert_with(Instant::now);
        let before = self.report.map_or(0, |report| report.bytes);
        self.report = Some(TransferReport {
            bytes: before + bytes,
            duration: started.elapsed(),
        });
        if self.sources.iter().all(PrefillSource::is_done) {
            Arrival::Complete
        } else {
            Arrival::More
        }
    }
}

impl PrefillSource {
    fn expect(&mut self, pages: usize) {
        self.arrived = vec![false; pages];
        self.is_dummy = self.peer.plan.is_empty(pages);
    }

    /// False if there are no such pages, or any of it had arrived before.
    fn mark_arrived(&mut self, first: usize, count: usize, last: bool) -> bool {
        let Some(pages) = self.arrived.get_mut(first..first + count) else {
            return false;
        };
        if pages.iter().any(|&arrived| arrived) || (last && self.tail_arrived) {
            return false;
        }
        pages.fill(true);
        self.tail_arrived |= last;
        true
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_dummy || (self.tail_arrived && self.arrived.iter().all(|&arrived| arrived))
    }
}
