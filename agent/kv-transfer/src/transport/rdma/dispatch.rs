//! Which piece goes over which lane (`choosing.rs`), and what has to go again (`closing.rs`): a pure state
//! machine; its caller passes in time and completions.
//!
//! * A transfer, the part of a room that one decode rank gets, keeps to a lane for a stripe, so that a
//!   small one ends on few lanes; then it takes the lane that would be done first, by the rate at which
//!   its rail has completed. Transfers take turns by stripes.
//! * When its last piece is posted, every lane that carried one ends with an immediate.
//! * When a rail fails, transfers that used it wait until the peer has closed it and said which of them
//!   it still waits for: the others may be complete there. Then their pieces go again over other rails,
//!   whether they had been completed or not (on another rail nothing says when bytes of the first are
//!   visible), and they end on their lanes again, as another attempt.

mod choosing;
mod closing;
pub(crate) mod piece;
mod rate;

use crate::clock::Instant;
use crate::plan::CopyRange;
pub(crate) use closing::Closed;
use piece::{Past, Piece, WorkItem, pieces};
use rate::Rate;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What a transfer puts on one lane before it looks for another.
const STRIPE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane {
    pub(crate) rail: usize,
    pub(crate) index: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TransferId(pub(crate) u64);

/// Something to post, in this order for each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) lane: Lane,
    /// Names it among its lane's posts.
    pub(crate) seq: u64,
    pub(crate) transfer: TransferId,
    pub(crate) item: WorkItem,
}

/// What a completion brought to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Piece {
        transfer: TransferId,
        chunk: usize,
        bytes: u64,
        /// It was completed before, on a rail that failed.
        is_again: bool,
        /// Since its post.
        took: Duration,
    },
    /// The NICs here hold nothing of it any more. It stays: what a NIC of decode's has taken, decode may
    /// not have counted when a rail fails.
    Idle(TransferId),
}

#[derive(Default)]
pub(crate) struct Dispatch {
    rails: BTreeMap<usize, Rail>,
    transfers: BTreeMap<TransferId, Transfer>,
    /// Those with something to post, by turns.
    turns: VecDeque<TransferId>,
    in_flight_bytes: u64,
    in_flight_bytes_max: u64,
    gather_max: usize,
}

struct Rail {
    lanes: Vec<LaneState>,
    depth: usize,
    in_flight_bytes: u64,
    rate: Rate,
    /// When it last completed something, or began to have something to complete.
    moved: Instant,
}

#[derive(Default)]
struct LaneState {
    next: u64,
    posted: VecDeque<InFlight>,
}

#[derive(Clone, Copy)]
struct InFlight {
    seq: u64,
    transfer: TransferId,
    item: WorkItem,
    at: Instant,
}

#[derive(Default)]
struct Transfer {
    waiting: VecDeque<Piece>,
    lanes: BTreeMap<Lane, OnLane>,
    /// Posts without a completion.
    in_flight: usize,
    attempt: u8,
    /// Its last chunk was handed over.
    is_whole: bool,
    is_cancelled: bool,
    /// Failed rails that the peer has not closed.
    awaits: BTreeSet<usize>,
    stripe: Option<(Lane, u64)>,
}

/// What a lane carries of a transfer.
#[derive(Default)]
struct OnLane {
    /// In the order in which they were posted.
    pieces: Vec<Piece>,
    completed: usize,
    ending: Ending,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    Open,
    Posted,
    Completed,
}

// === impl Dispatch ===

impl Dispatch {
    /// `in_flight_bytes_max` bounds what is posted and not completed, beyond a first piece; `gather_max` the
    /// sources of a piece.
    pub(crate) fn new(in_flight_bytes_max: u64, gather_max: usize) -> Self {
        Self {
            in_flight_bytes_max,
            gather_max,
            ..Self::default()
        }
    }

    /// A rail is up, with so many lanes that hold `depth` posts each.
    pub(crate) fn open_rail(
        &mut self,
        rail: usize,
        (lanes, depth): (usize, usize),
        bytes_per_s: Option<f64>,
        now: Instant,
    ) {
        let state = Rail {
            lanes: (0..lanes).map(|_| LaneState::default()).collect(),
            depth,
            in_flight_bytes: 0,
            rate: Rate::new(bytes_per_s),
            moved: now,
        };
        let before = self.rails.insert(rail, state);
        debug_assert!(before.is_none(), "a rail comes up once");
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.rails.is_empty()
    }

    /// Posted on a rail and not completed.
    pub(crate) fn in_flight_bytes_of(&self, rail: usize) -> u64 {
        self.rails.get(&rail).map_or(0, |rail| rail.in_flight_bytes)
    }

    /// Since when a rail that has something to complete has completed nothing.
    pub(crate) fn silent_since(&self, rail: usize) -> Option<Instant> {
        let rail = self.rails.get(&rail)?;
        rail.is_busy().then_some(rail.moved)
    }

    /// Adds pieces for `ranges` of a chunk; how many these are.
    pub(crate) fn add(
        &mut self,
        id: TransferId,
        chunk: usize,
        ranges: impl IntoIterator<Item = CopyRange>,
    ) -> usize {
        let transfer = self.transfers.entry(id).or_default();
        let pieces = pieces(ranges, self.gather_max, chunk);
        let added = pieces.len();
        if !transfer.is_cancelled {
            transfer.waiting.extend(pieces);
        }
        self.take_turn(id);
        added
    }

    /// Nothing comes after what was added.
    pub(crate) fn set_whole(&mut self, id: TransferId) {
        if let Some(transfer) = self.transfers.get_mut(&id) {
            transfer.is_whole = true;
            self.take_turn(id);
        }
    }

    /// Posts nothing more of a transfer; true if nothing of it can land any more, and then it is forgotten.
    pub(crate) fn cancel(&mut self, id: TransferId) -> bool {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return true;
        };
        transfer.waiting.clear();
        transfer.is_cancelled = true;
        let is_over = transfer.is_over();
        if is_over {
            self.forget(id);
        }
        is_over
    }

    /// Whether the NICs hold nothing of a transfer.
    pub(crate) fn is_idle(&self, id: TransferId) -> bool {
        let transfer = self.transfers.get(&id);
        transfer.is_none_or(|transfer| transfer.in_flight == 0)
    }

    /// Whether it was cancelled, and nothing of it can land any more.
    pub(crate) fn is_over(&self, id: TransferId) -> bool {
        self.transfers.get(&id).is_none_or(Transfer::is_over)
    }

    /// Forgets a transfer that is over.
    pub(crate) fn forget(&mut self, id: TransferId) {
        self.transfers.remove(&id);
        self.turns.retain(|turn| *turn != id);
    }

    fn take_turn(&mut self, id: TransferId) {
        if self.has_more(id) && !self.turns.contains(&id) {
            self.turns.push_back(id);
        }
    }

    fn has_more(&self, id: TransferId) -> bool {
        let transfer = self.transfers.get(&id);
        transfer.is_some_and(|transfer| transfer.may_post() || transfer.may_end())
    }

    /// The NIC has completed a lane's posts up to `seq`.
    pub(crate) fn completed(&mut self, lane: Lane, seq: u64, now: Instant) -> Vec<Completion> {
        let mut done = Vec::new();
        let Some(rail) = self.rails.get_mut(&lane.rail) else {
            return done;
        };
        let posted = &mut rail.lanes[lane.index].posted;
        let count = posted.partition_point(|posted| posted.seq <= seq);
        let finished: Vec<InFlight> = posted.drain(..count).collect();
        let bytes: u64 = finished.iter().map(|posted| posted.item.bytes()).sum();
        rail.in_flight_bytes -= bytes;
        rail.moved = now;
        rail.rate.count(bytes, now, rail.in_flight_bytes == 0);
        self.in_flight_bytes -= bytes;
        for posted in finished {
            done.extend(self.settle(lane, posted, now));
        }
        done
    }

    fn settle(&mut self, lane: Lane, posted: InFlight, now: Instant) -> Vec<Completion> {
        let mut done = Vec::new();
        let id = posted.transfer;
        let transfer = self.transfers.get_mut(&id).expect("it has posts in flight");
        transfer.in_flight -= 1;
        let on_lane = transfer.lanes.get_mut(&lane).expect("it posted here");
        match posted.item {
            WorkItem::Piece(piece) => {
                on_lane.completed += 1;
                done.push(Completion::Piece {
                    transfer: id,
                    chunk: piece.chunk,
                    bytes: u64::from(piece.len),
                    is_again: piece.was_completed(),
                    took: now.saturating_duration_since(posted.at),
                });
            }
            // One of an attempt before says nothing of this one.
            WorkItem::Final { attempt, .. } if attempt == transfer.attempt => {
                on_lane.ending = Ending::Completed;
            }
            WorkItem::Final { .. } => {}
        }
        if transfer.in_flight == 0 {
            done.push(Completion::Idle(id));
        }
        done
    }
}

// === impl Rail ===

impl Rail {
    fn is_busy(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.posted.is_empty())
    }
}

// === impl Transfer ===

impl Transfer {
    /// Cancelled, and nothing of it can land any more.
    fn is_over(&self) -> bool {
        self.is_cancelled && self.in_flight == 0 && self.awaits.is_empty()
    }

    fn may_post(&self) -> bool {
        !self.waiting.is_empty() && self.awaits.is_empty()
    }

    /// Its lanes may end, and some have not.
    fn may_end(&self) -> bool {
        let mut lanes = self.lanes.values();
        self.is_whole
            && !self.is_cancelled
            && self.waiting.is_empty()
            && self.awaits.is_empty()
            && lanes.any(|on| on.ending == Ending::Open)
    }

    /// Takes its pieces back from a rail; false if none are to go again.
    fn lose_rail(&mut self, rail: usize) -> bool {
        let of_rail = |lane: &Lane| lane.rail == rail;
        let lost: Vec<Lane> = self.lanes.keys().copied().filter(of_rail).collect();
        if lost.is_empty() {
            return false;
        }
        self.awaits.insert(rail);
        for lane in lost {
            let on_lane = self.lanes.remove(&lane).expect("it is one of them");
            let OnLane {
                pieces, completed, ..
            } = on_lane;
            let (done, lost) = pieces.split_at(completed);
            let past = done.iter().map(|piece| piece.after(Past::Completed));
            let past = past.chain(lost.iter().map(|piece| piece.after(Past::Posted)));
            self.waiting.extend(past);
        }
        self.stripe = self.stripe.filter(|(lane, _)| !of_rail(lane));
        if self.is_cancelled {
            self.waiting.clear();
            return false;
        }
        for on_lane in self.lanes.values_mut() {
            on_lane.ending = Ending::Open;
        }
        self.attempt += 1;
        true
    }
}

#[cfg(test)]
mod tests;
