//! Which piece goes over which lane, and what has to go again: a pure state
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

pub(crate) mod piece;
mod rate;

use super::immediate::ATTEMPT_MAX;
use crate::host::Instant;
use crate::plan::CopyRange;
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
pub(crate) struct PostedWork {
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

    /// What to post next, at most `max`.
    pub(crate) fn next(&mut self, max: usize, now: Instant) -> Vec<PostedWork> {
        let mut posts = Vec::new();
        let mut idle_turns = 0;
        while posts.len() < max && idle_turns < self.turns.len() {
            let Some(id) = self.turns.pop_front() else {
                break;
            };
            if !self.has_more(id) {
                continue;
            }
            let before = posts.len();
            self.turn(id, max, now, &mut posts);
            idle_turns = if posts.len() > before {
                0
            } else {
                idle_turns + 1
            };
            if self.has_more(id) {
                self.turns.push_back(id);
            }
        }
        posts
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

    /// Posts a stripe of a transfer, or its end.
    fn turn(&mut self, id: TransferId, max: usize, now: Instant, posts: &mut Vec<PostedWork>) {
        let mut stripe_left = STRIPE_BYTES;
        while posts.len() < max && stripe_left > 0 {
            let Some(piece) = self.transfers[&id].waiting.front().copied() else {
                return self.end(id, now, posts);
            };
            let Some(lane) = self.lane_for(id, u64::from(piece.len)) else {
                return;
            };
            let transfer = self.transfers.get_mut(&id).expect("looked at above");
            transfer.waiting.pop_front();
            transfer.lanes.entry(lane).or_default().pieces.push(piece);
            let len = u64::from(piece.len);
            stripe_left = stripe_left.saturating_sub(len);
            let left = transfer.stripe.filter(|(of, _)| *of == lane);
            let left = left.map_or(STRIPE_BYTES, |(_, left)| left);
            transfer.stripe = left
                .checked_sub(len)
                .filter(|left| *left > 0)
                .map(|left| (lane, left));
            posts.push(self.post(lane, id, WorkItem::Piece(piece), now));
        }
    }

    /// Ends the lanes of a transfer that can end, as far as they have places.
    fn end(&mut self, id: TransferId, now: Instant, posts: &mut Vec<PostedWork>) {
        let transfer = &self.transfers[&id];
        if !transfer.may_end() {
            return;
        }
        let (attempt, lanes) = (transfer.attempt, transfer.lanes.len());
        let lanes = u8::try_from(lanes).expect("no more lanes than an immediate can count");
        let open = transfer
            .lanes
            .iter()
            .filter(|(_, on)| on.ending == Ending::Open);
        let open: Vec<Lane> = open.map(|(lane, _)| *lane).collect();
        for lane in open
            .into_iter()
            .filter(|lane| self.has_place(*lane))
            .collect::<Vec<_>>()
        {
            let transfer = self.transfers.get_mut(&id).expect("looked at above");
            transfer
                .lanes
                .get_mut(&lane)
                .expect("it is one of them")
                .ending = Ending::Posted;
            posts.push(self.post(lane, id, WorkItem::Final { attempt, lanes }, now));
        }
    }

    fn post(
        &mut self,
        lane: Lane,
        transfer: TransferId,
        item: WorkItem,
        now: Instant,
    ) -> PostedWork {
        let rail = self.rails.get_mut(&lane.rail).expect("the lane is up");
        if !rail.is_busy() {
            rail.moved = now;
        }
        let state = &mut rail.lanes[lane.index];
        let seq = state.next;
        state.next += 1;
        state.posted.push_back(InFlight {
            seq,
            transfer,
            item,
            at: now,
        });
        rail.in_flight_bytes += item.bytes();
        rail.rate.begin(now);
        self.in_flight_bytes += item.bytes();
        let state = self.transfers.get_mut(&transfer).expect("it posts");
        state.in_flight += 1;
        PostedWork {
            lane,
            seq,
            transfer,
            item,
        }
    }

    fn has_place(&self, lane: Lane) -> bool {
        let rail = self.rails.get(&lane.rail);
        rail.is_some_and(|rail| rail.lanes[lane.index].posted.len() < rail.depth)
    }

    /// The lane that a transfer is on, or that which would be done with `bytes` first.
    fn lane_for(&self, id: TransferId, bytes: u64) -> Option<Lane> {
        let in_flight = self.in_flight_bytes;
        if in_flight > 0 && in_flight + bytes > self.in_flight_bytes_max {
            return None;
        }
        let current = self.transfers[&id].stripe.map(|(lane, _)| lane);
        if let Some(lane) = current.filter(|lane| self.has_place(*lane)) {
            return Some(lane);
        }
        let lanes = self.rails.iter().flat_map(|(&rail, state)| {
            let lanes = state.lanes.iter().enumerate();
            lanes.map(move |(index, lane)| (Lane { rail, index }, state, lane.posted.len()))
        });
        let free = lanes.filter(|(_, rail, posted)| *posted < rail.depth);
        let (lane, ..) = free.min_by(|(_, a, a_posted), (_, b, b_posted)| {
            let done =
                |rail: &Rail| (rail.in_flight_bytes + bytes) as f64 / rail.rate.bytes_per_s();
            done(a).total_cmp(&done(b)).then(a_posted.cmp(b_posted))
        })?;
        Some(lane)
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

    /// A rail is gone, and its queue pairs with it. Gives the transfers of which the NICs here hold
    /// nothing any more, and those that rails have failed under too often, whose rooms are to be failed.
    pub(crate) fn close_rail(&mut self, number: usize) -> Closed {
        let mut closed = Closed::default();
        let Some(rail) = self.rails.remove(&number) else {
            return closed;
        };
        self.in_flight_bytes -= rail.in_flight_bytes;
        let posted = rail.lanes.iter().flat_map(|lane| &lane.posted);
        for InFlight { transfer, .. } in posted {
            let state = self
                .transfers
                .get_mut(transfer)
                .expect("it has posts in flight");
            state.in_flight -= 1;
            if state.in_flight == 0 {
                closed.idle.push(*transfer);
            }
        }
        for (id, transfer) in &mut self.transfers {
            if transfer.lose_rail(number) && transfer.attempt > ATTEMPT_MAX {
                closed.exhausted.push(*id);
            }
        }
        closed
    }

    /// The peer has closed its ends of a rail that failed, and still waits for some transfers; the others
    /// are cancelled. Gives those that are over.
    pub(crate) fn peer_closed(
        &mut self,
        rail: usize,
        waits_for: impl Fn(TransferId) -> bool,
    ) -> Vec<TransferId> {
        let mut concerned = Vec::new();
        for (id, transfer) in &mut self.transfers {
            if transfer.awaits.remove(&rail) {
                concerned.push(*id);
            }
        }
        let mut over = Vec::new();
        for id in concerned {
            let is_wanted = waits_for(id) && !self.transfers[&id].is_cancelled;
            if is_wanted {
                self.take_turn(id);
            } else if self.cancel(id) {
                over.push(id);
            }
        }
        over
    }
}

/// What a failed rail leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) idle: Vec<TransferId>,
    pub(crate) exhausted: Vec<TransferId>,
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
