//! What goes next, and over which lane.

use super::piece::WorkItem;
use super::{Dispatch, Ending, InFlight, Lane, Post, Rail, STRIPE_BYTES, TransferId};
use crate::clock::Instant;

impl Dispatch {
    /// What to post next, about `max`: the ends of a transfer may go beyond it.
    pub(crate) fn next(&mut self, max: usize, now: Instant) -> Vec<Post> {
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
            self.choose_stripe(id, max, now, &mut posts);
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

    /// Chooses lanes for a stripe of a transfer, or for its end.
    fn choose_stripe(&mut self, id: TransferId, max: usize, now: Instant, posts: &mut Vec<Post>) {
        let mut stripe_left = STRIPE_BYTES;
        while posts.len() < max && stripe_left > 0 {
            let Some(piece) = self.transfers[&id].waiting.front().copied() else {
                return self.choose_end(id, now, posts);
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
            posts.push(self.book(lane, id, WorkItem::Piece(piece), now));
        }
    }

    /// Ends the lanes of a transfer that can end, as far as they have places.
    fn choose_end(&mut self, id: TransferId, now: Instant, posts: &mut Vec<Post>) {
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
            posts.push(self.book(lane, id, WorkItem::Final { attempt, lanes }, now));
        }
    }

    /// Enters what the caller of `next` is to post as in flight.
    fn book(&mut self, lane: Lane, transfer: TransferId, item: WorkItem, now: Instant) -> Post {
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
        Post {
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
}
