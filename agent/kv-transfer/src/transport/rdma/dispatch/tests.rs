//! Schedules of posts, deliveries, completions, failures and aborts in any order, by seed: in each
//! happens, decode never takes a room for complete that is not, and nothing lands in memory that
//! decode may use again.

use super::piece::PIECE_BYTES;
use super::*;
use crate::transport::rdma::immediate::Final;
use crate::transport::rdma::receiver::count::{self, Count};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

const SCHEDULES: u64 = 10_000;
const RAILS: usize = 3;
const LANES: usize = 2;
const DEPTH: usize = 3;
const GATHER_MAX: usize = 3;
const STEPS: usize = 120;

/// What is wrong with a schedule.
#[derive(Debug, PartialEq, Eq)]
enum Violation {
    /// Complete for decode, and this piece never came.
    Torn(TransferId, u64),
    /// Decode may use the memory again, and this piece came.
    Late(TransferId, u64),
    /// Nothing was left to do, and this room had not ended.
    Stuck(TransferId),
}

/// What happens to a failed rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// As the product does: its pieces go again when decode has closed its ends and said for whom.
    Whole,
    /// As if decode had closed it and waited for all.
    Skipped,
    /// Decode does not say which rooms are complete.
    WithoutList,
    /// Decode goes on counting what had ended on it.
    WithMemory,
    /// Prefill forgets rooms whose lanes have all ended, before it hears of their success.
    Forgetful,
}

struct World {
    random: StdRng,
    fence: Fence,
    dispatch: Dispatch,
    /// What the NICs hold, by rail and lane.
    wires: BTreeMap<usize, Vec<VecDeque<Post>>>,
    /// Delivered, and prefill does not know.
    delivered: BTreeMap<Lane, u64>,
    /// Ends of lanes that decode's NIC has taken and decode has not counted, by rail.
    uncounted: BTreeMap<usize, VecDeque<Post>>,
    /// What failed rails may still deliver, until decode closes them.
    stray: BTreeMap<usize, Vec<VecDeque<Post>>>,
    rooms: BTreeMap<TransferId, Room>,
    now: Instant,
}

#[derive(Default)]
struct Room {
    wanted: BTreeSet<u64>,
    landed: BTreeSet<u64>,
    chunks_left: usize,
    count: Count,
    /// Decode may use its memory again.
    is_free: bool,
    is_cancelled: bool,
    /// Prefill has heard of its success.
    is_heard: bool,
}

impl World {
    fn new(seed: u64, fence: Fence) -> Self {
        let mut world = Self {
            random: StdRng::seed_from_u64(seed),
            fence,
            dispatch: Dispatch::new(4 * PIECE_BYTES, GATHER_MAX),
            wires: BTreeMap::new(),
            delivered: BTreeMap::new(),
            uncounted: BTreeMap::new(),
            stray: BTreeMap::new(),
            rooms: BTreeMap::new(),
            now: Instant::now(),
        };
        (0..RAILS).for_each(|rail| world.open(rail));
        world
    }

    fn open(&mut self, rail: usize) {
        self.dispatch
            .open_rail(rail, (LANES, DEPTH), None, self.now);
        self.wires.insert(rail, vec![VecDeque::new(); LANES]);
    }

    fn run(mut self) -> Result<(), Violation> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.settle()
    }

    fn step(&mut self) -> Result<(), Violation> {
        self.now += Duration::from_micros(self.random.random_range(1..500));
        match self.random.random_range(0..100) {
            0..10 => self.hand_over(),
            10..40 => self.post(),
            40..65 => self.deliver()?,
            65..75 => self.count()?,
            75..85 => self.complete(),
            85..90 => self.hear(),
            90..93 => self.fail_rail(),
            93..95 => self.deliver_stray()?,
            95..97 => self.close_and_reopen(),
            _ => self.abort(),
        }
        Ok(())
    }

    /// A chunk of a new room or of one that is not whole, cancelled ones included.
    fn hand_over(&mut self) {
        let open = self.rooms.iter().filter(|(_, room)| room.chunks_left > 0);
        let open: Vec<TransferId> = open.map(|(id, _)| *id).collect();
        let id = match open.as_slice() {
            [] => TransferId(self.rooms.len() as u64),
            open => open[self.random.random_range(0..open.len())],
        };
        let chunks = self.random.random_range(1..4);
        let room = self.rooms.entry(id).or_insert_with(|| Room {
            chunks_left: chunks,
            ..Room::default()
        });
        let ranges: Vec<CopyRange> = (0..self.random.random_range(1..4))
            .map(|i| CopyRange {
                src_region: 0,
                src_offset: 0,
                dst_region: 0,
                dst_offset: (room.chunks_left as u64) << 32 | i << 24,
                len: self.random.random_range(1..3 * PIECE_BYTES),
            })
            .collect();
        let pieces = pieces(ranges.iter().copied(), GATHER_MAX, 0);
        room.wanted
            .extend(pieces.iter().map(|piece| piece.dst_offset));
        room.chunks_left -= 1;
        let is_whole = room.chunks_left == 0;
        let is_cancelled = room.is_cancelled;
        self.dispatch.add(id, 0, ranges);
        if is_cancelled {
            // As the writer does with what comes for a room whose fence is closed.
            self.dispatch.cancel(id);
        }
        if is_whole {
            self.dispatch.set_whole(id);
        }
    }

    fn post(&mut self) {
        let max = self.random.random_range(1..8);
        for post in self.dispatch.next(max, self.now) {
            let rail = self
                .wires
                .get_mut(&post.lane.rail)
                .expect("only rails that are up");
            rail[post.lane.index].push_back(post);
        }
    }

    fn pick(&mut self, lanes: &[Lane]) -> Option<Lane> {
        match lanes {
            [] => None,
            lanes => Some(lanes[self.random.random_range(0..lanes.len())]),
        }
    }

    /// The next write of some lane reaches decode.
    fn deliver(&mut self) -> Result<(), Violation> {
        let lanes = busy(&self.wires);
        let Some(lane) = self.pick(&lanes) else {
            return Ok(());
        };
        let wire = &mut self.wires.get_mut(&lane.rail).expect("it is busy")[lane.index];
        let post = wire.pop_front().expect("it is busy");
        self.delivered.insert(lane, post.seq);
        self.land(post)
    }

    fn deliver_stray(&mut self) -> Result<(), Violation> {
        let lanes = busy(&self.stray);
        let Some(lane) = self.pick(&lanes) else {
            return Ok(());
        };
        let wire = &mut self.stray.get_mut(&lane.rail).expect("it is busy")[lane.index];
        let post = wire.pop_front().expect("it is busy");
        self.land(post)
    }

    fn land(&mut self, post: Post) -> Result<(), Violation> {
        let id = post.transfer;
        let room = self.rooms.get_mut(&id).expect("it was handed over");
        match post.item {
            WorkItem::Piece(piece) => {
                if room.is_free {
                    return Err(Violation::Late(id, piece.dst_offset));
                }
                room.landed.insert(piece.dst_offset);
            }
            WorkItem::Final { .. } => {
                self.uncounted
                    .entry(post.lane.rail)
                    .or_default()
                    .push_back(post);
            }
        }
        Ok(())
    }

    /// Decode looks at what some rail brought.
    fn count(&mut self) -> Result<(), Violation> {
        let rails: Vec<usize> = self.uncounted.keys().copied().collect();
        if rails.is_empty() {
            return Ok(());
        }
        let rail = rails[self.random.random_range(0..rails.len())];
        let queue = self.uncounted.get_mut(&rail).expect("one of them");
        let post = queue.pop_front();
        if queue.is_empty() {
            self.uncounted.remove(&rail);
        }
        let Some(Post {
            lane,
            transfer: id,
            item: WorkItem::Final { attempt, lanes },
            ..
        }) = post
        else {
            return Ok(());
        };
        let ended = Final {
            row: 0,
            generation: 0,
            attempt,
            lanes,
        };
        let lane = count::Lane {
            rail: u32::try_from(lane.rail).expect("few rails"),
            index: lane.index,
        };
        let room = self.rooms.get_mut(&id).expect("it was handed over");
        if !room.is_free && room.count.add(lane, ended) {
            if let Some(missing) = room.wanted.difference(&room.landed).next() {
                return Err(Violation::Torn(id, *missing));
            }
            room.is_free = true;
        }
        Ok(())
    }

    fn forget_ended(&mut self) {
        let has_ended = |transfer: &Transfer| {
            let mut lanes = transfer.lanes.values();
            transfer.is_whole
                && transfer.waiting.is_empty()
                && lanes.all(|on| on.ending == Ending::Completed)
        };
        let transfers = self.dispatch.transfers.iter();
        let ended = transfers.filter(|(_, transfer)| has_ended(transfer));
        let ended: Vec<TransferId> = ended.map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| self.dispatch.forget(id));
    }

    /// Prefill hears that a room is complete, and closes its fence.
    fn hear(&mut self) {
        let aborted = self
            .rooms
            .iter_mut()
            .filter(|(_, room)| room.is_free && !room.is_heard);
        let aborted: Vec<TransferId> = aborted
            .map(|(id, room)| {
                room.is_heard = true;
                *id
            })
            .collect();
        for id in aborted {
            self.dispatch.cancel(id);
        }
    }

    /// Prefill learns of what was delivered on some lane.
    fn complete(&mut self) {
        let lanes: Vec<Lane> = self.delivered.keys().copied().collect();
        let Some(lane) = self.pick(&lanes) else {
            return;
        };
        let seq = self.delivered.remove(&lane).expect("one of them");
        for done in self.dispatch.completed(lane, seq, self.now) {
            if let Completion::Idle(id) = done {
                self.on_idle(id);
            }
        }
        if self.fence == Fence::Forgetful {
            self.forget_ended();
        }
    }

    fn on_idle(&mut self, id: TransferId) {
        if self.dispatch.is_over(id) {
            self.dispatch.forget(id);
            self.free(id);
        }
    }

    /// Decode hears that nothing more comes.
    fn free(&mut self, id: TransferId) {
        self.rooms.get_mut(&id).expect("it was handed over").is_free = true;
    }

    /// A rail dies under prefill; decode's ends still accept what is on the way.
    fn fail_rail(&mut self) {
        let rails: Vec<usize> = self.wires.keys().copied().collect();
        if rails.is_empty() {
            return;
        }
        let rail = rails[self.random.random_range(0..rails.len())];
        let wires = self.wires.remove(&rail).expect("one of them");
        self.delivered.retain(|lane, _| lane.rail != rail);
        self.stray.insert(rail, wires);
        for id in self.dispatch.close_rail(rail).idle {
            self.on_idle(id);
        }
        if self.fence == Fence::Skipped {
            let over = self.dispatch.peer_closed(rail, |_| true);
            over.into_iter().for_each(|id| self.free(id));
        }
    }

    /// Decode destroys its ends of a failed rail, and the rail comes up again.
    fn close_and_reopen(&mut self) {
        let Some((rail, _)) = self.stray.pop_first() else {
            return;
        };
        let number = u32::try_from(rail).expect("few rails");
        if self.fence != Fence::WithMemory {
            let counts = self.rooms.values_mut().map(|room| &mut room.count);
            counts.for_each(|count| count.forget_rail(number));
        }
        // With its queue pairs go their completions.
        self.uncounted.remove(&rail);
        let rooms = &self.rooms;
        let waits_for = |id| self.fence == Fence::WithoutList || !rooms[&id].is_free;
        let over = self.dispatch.peer_closed(rail, waits_for);
        over.into_iter().for_each(|id| self.free(id));
        self.open(rail);
    }

    fn abort(&mut self) {
        let live = self
            .rooms
            .iter()
            .filter(|(_, room)| !room.is_free && !room.is_cancelled);
        let live: Vec<TransferId> = live.map(|(id, _)| *id).collect();
        if live.is_empty() || self.random.random_range(0..4) > 0 {
            return;
        }
        let id = live[self.random.random_range(0..live.len())];
        let is_idle = self.dispatch.cancel(id);
        let room = self.rooms.get_mut(&id).expect("one of them");
        room.is_cancelled = true;
        room.is_free = is_idle;
    }

    /// Everything comes to its end, if it can.
    fn settle(mut self) -> Result<(), Violation> {
        loop {
            while !self.stray.is_empty() {
                self.close_and_reopen();
            }
            let open = |room: &Room| room.chunks_left > 0;
            while self.rooms.values().any(open) {
                self.hand_over();
            }
            self.post();
            let lanes = busy(&self.wires);
            if lanes.is_empty() && self.delivered.is_empty() && self.uncounted.is_empty() {
                break;
            }
            self.deliver()?;
            self.count()?;
            self.complete();
        }
        let left = self.rooms.iter().find(|(_, room)| !room.is_free);
        left.map_or(Ok(()), |(id, _)| Err(Violation::Stuck(*id)))
    }
}

fn busy(wires: &BTreeMap<usize, Vec<VecDeque<Post>>>) -> Vec<Lane> {
    let lanes = wires.iter().flat_map(|(&rail, lanes)| {
        let lanes = lanes.iter().enumerate();
        lanes.map(move |(index, wire)| (Lane { rail, index }, wire))
    });
    let busy = lanes.filter(|(_, wire)| !wire.is_empty());
    busy.map(|(lane, _)| lane).collect()
}

#[test]
fn no_schedule_tears_a_room_or_writes_into_one_that_is_over() {
    for seed in 0..SCHEDULES {
        let outcome = World::new(seed, Fence::Whole).run();
        assert_eq!(outcome, Ok(()), "seed {seed}");
    }
}

#[test]
fn each_part_of_the_fence_of_failed_rails_is_needed() {
    for fence in [
        Fence::Skipped,
        Fence::WithoutList,
        Fence::WithMemory,
        Fence::Forgetful,
    ] {
        let mut outcomes = (0..SCHEDULES).map(|seed| World::new(seed, fence).run());
        let found = outcomes.find_map(Result::err);
        assert!(found.is_some(), "{fence:?} is not noticed");
    }
}

#[test]
fn a_small_room_ends_on_one_lane_and_a_large_one_on_all() {
    for (pieces, lanes) in [(1, 1), (16, 4)] {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(u64::MAX, 1);
        dispatch.open_rail(0, (2, 64), None, now);
        dispatch.open_rail(1, (2, 64), None, now);
        let id = TransferId(0);
        let range = CopyRange {
            src_region: 0,
            src_offset: 0,
            dst_region: 0,
            dst_offset: 0,
            len: pieces * PIECE_BYTES,
        };
        dispatch.add(id, 0, [range]);
        dispatch.set_whole(id);
        let posts = dispatch.next(100, now);
        let finals = posts
            .iter()
            .filter(|post| matches!(post.item, WorkItem::Final { .. }));
        assert_eq!(finals.count(), lanes, "{pieces} pieces");
    }
}

#[test]
fn a_slow_rail_gets_less() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(u64::MAX, 1);
    dispatch.open_rail(0, (1, 256), Some(3e9), now);
    dispatch.open_rail(1, (1, 256), Some(1e9), now);
    let range = CopyRange {
        src_region: 0,
        src_offset: 0,
        dst_region: 0,
        dst_offset: 0,
        len: 100 * PIECE_BYTES,
    };
    dispatch.add(TransferId(0), 0, [range]);
    let posts = dispatch.next(100, now);
    let slow = posts.iter().filter(|post| post.lane.rail == 1).count();
    assert!((24..=26).contains(&slow), "{slow} of 100 pieces");
}

#[test]
fn a_resent_piece_is_marked_and_timed_again() {
    let began = Instant::now();
    let after = |ms| began + Duration::from_millis(ms);
    let mut dispatch = Dispatch::new(u64::MAX, 1);
    dispatch.open_rail(0, (1, 64), None, began);
    let range = CopyRange {
        src_region: 0,
        src_offset: 0,
        dst_region: 0,
        dst_offset: 0,
        len: 2 * PIECE_BYTES,
    };
    let is_retry = |work: &Post| matches!(work.item, WorkItem::Piece(p) if p.is_retry());
    let pieces = |done: Vec<Completion>| -> Vec<(bool, Duration)> {
        let pieces = done.into_iter().filter_map(|done| match done {
            Completion::Piece { is_again, took, .. } => Some((is_again, took)),
            Completion::Idle(_) => None,
        });
        pieces.collect()
    };
    dispatch.add(TransferId(0), 0, [range]);
    let posts = dispatch.next(100, began);
    assert!(!posts.iter().any(is_retry));
    let done = dispatch.completed(posts[0].lane, posts[0].seq, after(5));
    assert_eq!(pieces(done), [(false, Duration::from_millis(5))]);
    assert_eq!(dispatch.in_flight_bytes_of(0), PIECE_BYTES);

    dispatch.open_rail(1, (1, 64), None, after(5));
    dispatch.close_rail(0);
    dispatch.peer_closed(0, |_| true);
    assert_eq!(dispatch.in_flight_bytes_of(0), 0);
    let posts = dispatch.next(100, after(6));
    assert_eq!(posts.iter().filter(|post| is_retry(post)).count(), 2);
    let done = dispatch.completed(posts[1].lane, posts[1].seq, after(9));
    let took = Duration::from_millis(3);
    assert_eq!(pieces(done), [(true, took), (false, took)]);
}
