//! Prefill's end of the rails to one decode rank: one task that takes chunks from the rooms
//! (`transfers.rs::on_job`), posts what its dispatch chooses (`transfers.rs::pump`), and tends the rails.

pub(crate) mod handle;
mod rail;
mod transfers;

use super::dispatch::{Closed, Dispatch, Lane, TransferId};
use super::fabric::Fabric;
use super::immediate::LANES_MAX;
use crate::clock::Instant;
use crate::failure::FailureReason;
use crate::fence::FenceGuard;
use crate::shared::Shared;
use crate::transport::outgoing::{ChunkMeter, OutboundPeer, OutboundRoom};
use handle::{Event, Job};
use pd_protocol::BootstrapRoom;
use pd_protocol::control::{
    ControlMessage, Generation, NicInfo, RailAnswer, RailClosed, RailDown, TransferInfo,
};
use pd_verbs::{Completion, PathOptions, Retry};
use rail::{Proof, Rail, SEND_DEPTH};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Posts of one round.
const ROUND: usize = 128;
/// A decode peer all of whose rails have failed is lost after this; decode then registers again.
const NO_RAIL_MAX: Duration = Duration::from_secs(3);
/// A rail that completes nothing for so long, of what it has, has failed: some devices never give up.
const SILENT_MAX: Duration = Duration::from_secs(2);

struct Writer {
    shared: Arc<Shared>,
    peer: Arc<OutboundPeer>,
    fabric: Arc<Fabric>,
    /// Before what they read: queue pairs end before the fences of the memory open.
    rails: Vec<Rail>,
    dispatch: Dispatch,
    live: BTreeMap<TransferId, Live>,
    ids: HashMap<(BootstrapRoom, Generation), TransferId>,
    next_id: u64,
    events: mpsc::Sender<Event>,
    /// Since when rooms wait and no rail is up.
    without_rails: Option<Instant>,
}

/// A room on its way to this decode rank.
struct Live {
    room: Arc<dyn OutboundRoom>,
    info: TransferInfo,
    chunks: Vec<ChunkMeter>,
    /// While the NICs may read the room's memory.
    guard: Option<FenceGuard>,
    /// Decode waits to hear that nothing more comes.
    is_aborted: bool,
}

// === impl Writer ===

impl Writer {
    fn new(
        shared: &Arc<Shared>,
        peer: &Arc<OutboundPeer>,
        (fabric, nics): (&Arc<Fabric>, &[NicInfo]),
        events: mpsc::Sender<Event>,
    ) -> Self {
        let tasks = &shared.tasks;
        let pairs = fabric.pairs(nics);
        let lanes = fabric.config.lanes.clamp(1, LANES_MAX);
        let pairs = pairs.into_iter().take(LANES_MAX / lanes).enumerate();
        let rails = pairs.map(|(number, (here, there))| {
            let nic = Arc::clone(&fabric.nics[here]);
            let (own, other) = (nic.device.name(), &nics[there].device);
            let metrics = peer.metrics.written_rail(own, other);
            Rail::new(number, (nic, there), lanes, (metrics, tasks.clone()))
        });
        Self {
            shared: Arc::clone(shared),
            peer: Arc::clone(peer),
            fabric: Arc::clone(fabric),
            rails: rails.collect(),
            dispatch: Dispatch::new(fabric.config.in_flight_bytes, fabric.gather_max()),
            live: BTreeMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            events,
            without_rails: None,
        }
    }

    async fn run(mut self, mut jobs: mpsc::Receiver<Job>, mut events: mpsc::Receiver<Event>) {
        let mut tick = tokio::time::interval(self.resend_interval());
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let lost = self.peer.lost.clone();
        if self.rails.is_empty() {
            self.report_no_rails();
        }
        loop {
            tokio::select! {
                biased;
                () = lost.cancelled() => break,
                _ = tick.tick() => self.tend(Instant::now()),
                Some(event) = events.recv() => if self.on_event(event).is_break() {
                    break;
                },
                Some(job) = jobs.recv() => self.on_job(job),
            }
            self.pump();
        }
        // The NICs are done before the queues close.
        drop(self);
    }

    fn resend_interval(&self) -> Duration {
        self.shared.config.transfer.resend_interval
    }

    fn send(&self, message: &ControlMessage) {
        // A full outbox empties, or the peer is lost; what matters is sent again.
        if let Err(error) = self.peer.send(message) {
            tracing::debug!(session = %self.peer.id(), %error, "could not send a rail message");
        }
    }

    fn report_no_rails(&self) {
        let down = RailDown {
            session_id: self.peer.id().clone(),
            rail: 0,
            epoch: 0,
            reason: "no RDMA device of prefill's can meet one of decode's".to_owned(),
        };
        self.send(&ControlMessage::RailDown(down));
    }

    fn on_event(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Answered(answer) => self.on_answer(&answer),
            Event::Closed(closed) => self.on_closed(&closed),
            Event::Unwanted => return ControlFlow::Break(()),
            Event::Aborted(room, generation) => self.on_aborted(room, generation),
            Event::Completed {
                rail,
                epoch,
                completions,
            } => self.on_completed(rail, epoch, completions),
            Event::Broken {
                rail,
                epoch,
                reason,
            } => {
                if self.rails[rail].is_of(epoch) {
                    self.fail_rail(rail, &FailureReason::device(reason));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn on_completed(&mut self, number: usize, epoch: u32, completions: Vec<Completion>) {
        for completion in completions {
            let rail = &mut self.rails[number];
            if !rail.is_of(epoch) {
                return;
            }
            match rail.settle(completion) {
                Ok(Proof::Written { lane, seq }) => {
                    let lane = Lane {
                        rail: number,
                        index: lane,
                    };
                    let done = self.dispatch.completed(lane, seq, Instant::now());
                    done.into_iter().for_each(|done| self.on_done(number, done));
                }
                Ok(Proof::Carries) => {
                    let sizes = (rail.lanes(), SEND_DEPTH as usize);
                    let (session, device) = (self.peer.id(), rail.device());
                    tracing::info!(%session, rail = number, device, "rail is up");
                    let (rate, now) = (rail.bytes_per_s(), Instant::now());
                    self.dispatch.open_rail(number, sizes, rate, now);
                }
                Ok(Proof::Nothing) => {}
                Err(reason) => return self.fail_rail(number, &reason),
            }
        }
    }

    // === rails ===

    /// Sends again what was not answered, and offers again what failed a while ago.
    fn tend(&mut self, now: Instant) {
        let total = u32::try_from(self.rails.len()).expect("few rails");
        for number in 0..self.rails.len() {
            let times = (now, self.resend_interval());
            let rail = &mut self.rails[number];
            let message = rail.tend(&self.peer, total, &self.events, times);
            if let Some(message) = message {
                self.send(&message);
            }
            if self.rails[number].is_connecting() {
                self.connect(number, Rail::connect_rest);
            }
            let silent_since = self.dispatch.silent_since(number);
            let silent_since = silent_since.or(self.rails[number].unproven_since());
            if silent_since.is_some_and(|since| now.duration_since(since) > SILENT_MAX) {
                let why = format!("nothing was completed in {SILENT_MAX:?}");
                self.fail_rail(number, &FailureReason::network(why));
            }
        }
        let is_stuck = !self.dispatch.is_up() && !self.live.is_empty();
        let since = self.without_rails.unwrap_or(now);
        self.without_rails = is_stuck.then_some(since);
        let patience_ended = |since: Instant| now.duration_since(since) > NO_RAIL_MAX;
        if self.without_rails.is_some_and(patience_ended) {
            let why: Vec<String> = self.rails.iter().filter_map(Rail::why_down).collect();
            let (to, why) = (&self.peer.info.endpoint, why.join("; "));
            let message = format!("no rail is left to {to}: {why}");
            self.peer.lose(&FailureReason::network(message));
        }
    }

    fn on_answer(&mut self, answer: &RailAnswer) {
        let Some(rail) = self.rails.get_mut(answer.rail as usize) else {
            return;
        };
        if !rail.awaits_answer(answer.epoch) {
            return;
        }
        if let Some(why) = &answer.refused {
            let why = format!("decode refuses it: {why}");
            return rail.decline(FailureReason::peer(why));
        }
        let region_lens = self.peer.info.layout.region_lens();
        self.connect(answer.rail as usize, |rail, options| {
            rail.connect(answer, &region_lens, options)
        });
    }

    /// Takes a step that the kernel may look for the peer in, for a second.
    fn connect(
        &mut self,
        number: usize,
        step: impl FnOnce(&mut Rail, (PathOptions, Retry)) -> Result<(), FailureReason>,
    ) {
        let options = (self.fabric.path(), self.fabric.retry());
        let rail = &mut self.rails[number];
        if let Err(reason) = tokio::task::block_in_place(|| step(rail, options)) {
            self.fail_rail(number, &reason);
        }
    }

    /// Takes a rail down, moves its pieces to others and notifies decode.
    fn fail_rail(&mut self, number: usize, reason: &FailureReason) {
        let rail = &mut self.rails[number];
        let was_up = rail.is_up();
        // The queue pairs end here.
        let Some(down) = rail.fail(&self.peer, reason) else {
            return;
        };
        let (session, device) = (self.peer.id(), rail.device());
        tracing::warn!(%session, rail = number, device, %reason, "rail failed");
        self.send(&down);
        if !was_up {
            return;
        }
        let Closed { idle, exhausted } = self.dispatch.close_rail(number);
        idle.into_iter().for_each(|id| self.on_idle(id));
        for id in exhausted {
            if let Some(live) = self.live.get(&id) {
                let room = Arc::clone(&live.room);
                let message = format!(
                    "room {}: too many rails failed under it, the last: {}",
                    room.id(),
                    reason.message
                );
                room.fail(FailureReason::network(message));
            }
        }
    }

    fn on_closed(&mut self, closed: &RailClosed) {
        let number = closed.rail as usize;
        let Some(rail) = self.rails.get_mut(number) else {
            return;
        };
        // Decode's NIC may have failed before ours notices.
        if rail.is_of(closed.epoch) && rail.is_open() {
            let reason = FailureReason::peer("decode's NIC does not answer");
            return self.fail_rail(number, &reason);
        }
        if rail.closed(closed.epoch) {
            let live = &self.live;
            let waits_for = |id| {
                let live: Option<&Live> = live.get(&id);
                live.is_some_and(|live| closed.waiting.contains(&live.info.generation))
            };
            let over = self.dispatch.peer_closed(number, waits_for);
            over.into_iter().for_each(|id| self.forget(id));
        }
    }
}
