//! Decode's end of a session's rails: queue pairs that accept prefill's writes (made in `accepting.rs`), and
//! the count of lanes that have ended, by room. `listening.rs` takes the completions and reports a room that
//! is complete.

mod accepting;
pub(crate) mod count;
mod listening;
mod status;

use super::fabric::Fabric;
use super::immediate::{Final, LANES_MAX, PROBE};
use crate::control::outbox::Outbox;
use crate::fence::FenceGuard;
use crate::metrics::{PeerMetrics, RailMetrics, RailState};
use crate::tasks::Tasks;
use crate::transport::incoming::InboundRoom;
use count::{Count, Lane};
use parking_lot::Mutex;
use pd_protocol::control::{
    ControlMessage, Generation, NicInfo, RailAnswer, RailClosed, RailDown, RailOffer, SessionId,
};
use pd_verbs::QueuePair;
use pd_verbs::queue_pair::Rtr;
pub(crate) use status::RailStatus;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Of a peer's reason, so many characters are kept.
const REASON_CHARS: usize = 300;

/// See the module's header. Closing it ends every write of this session.
pub(crate) struct RdmaReceiver {
    fabric: Arc<Fabric>,
    session_id: SessionId,
    /// None once closed. One lock for both parts: what a rail brings is counted before it is closed, or
    /// not at all.
    open: Mutex<Option<Open>>,
    status: watch::Sender<RailStatus>,
    metrics: Arc<PeerMetrics>,
}

/// Queue pairs end before the memory is released that they wrote to: the order of the fields.
#[derive(Default)]
struct Open {
    rails: BTreeMap<u32, Rail>,
    /// Rooms that wait for writes, by their rows.
    expected: HashMap<u32, Expected>,
}

/// The queue pairs of one offer of a rail; those of another epoch are gone or not there yet.
#[derive(Clone, Copy, Debug)]
struct RailEpoch {
    rail: u32,
    epoch: u32,
}

struct Rail {
    epoch: u32,
    state: State,
    metrics: RailMetrics,
}

enum State {
    /// Its queue pairs are being made.
    Accepting,
    Open {
        answer: RailAnswer,
        ends: Ends,
    },
    Refused(RailAnswer),
    Closed,
}

struct Ends {
    lanes: Vec<QueuePair<Rtr>>,
    /// Queue pairs whose probe has not come.
    unproven: BTreeSet<u32>,
    poller: AbortHandle,
}

struct Expected {
    room: Arc<dyn InboundRoom>,
    count: Count,
    /// Prefill's NICs may write; held until the room has what they wrote.
    guard: FenceGuard,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.poller.abort();
    }
}

/// The answer to an offer that is not taken.
pub(super) fn refusal(offer: &RailOffer, why: String) -> RailAnswer {
    RailAnswer {
        session_id: offer.session_id.clone(),
        rail: offer.rail,
        epoch: offer.epoch,
        ends: Vec::new(),
        regions: Vec::new(),
        refused: Some(why),
    }
}

// === impl Open ===

impl Open {
    /// Destroys the ends of a rail: nothing of it can land any more, and what had ended on it counts no
    /// more. Gives the rooms that wait for writes.
    fn close(&mut self, rail: u32, epoch: u32) -> Vec<Generation> {
        if let Some(known) = self.rails.get_mut(&rail)
            && known.epoch <= epoch
        {
            known.set_state(State::Closed);
        }
        let rooms = self.expected.values_mut().map(|expected| {
            expected.count.forget_rail(rail);
            expected.room.generation()
        });
        rooms.collect()
    }

    /// Makes room for another immediate on a lane; which lane it is, and whether the rail has just come
    /// up with it.
    fn received(
        &mut self,
        RailEpoch { rail, epoch }: RailEpoch,
        qp_num: u32,
        immediate: u32,
    ) -> Option<(Lane, bool)> {
        let known = self
            .rails
            .get_mut(&rail)
            .filter(|known| known.epoch == epoch)?;
        let State::Open { ends, .. } = &mut known.state else {
            return None;
        };
        let mut lanes = ends.lanes.iter_mut().enumerate();
        let (index, lane) = lanes.find(|(_, lane)| lane.qp_num() == qp_num)?;
        if let Err(error) = lane.post_receives(1) {
            tracing::warn!(%error, "lane takes no more receives");
        }
        let is_news = immediate == PROBE && ends.unproven.remove(&qp_num);
        let is_up = is_news && ends.unproven.is_empty();
        if is_up {
            known.show();
        }
        Some((Lane { rail, index }, is_up))
    }

    /// A lane has ended; the room that is complete by it.
    fn count(&mut self, lane: Lane, ended: Final) -> Option<Expected> {
        let known = self.expected.get_mut(&ended.row)?;
        let is_of = Final::low_bits(known.room.generation()) == ended.generation;
        let is_complete = is_of && known.count.add(lane, ended);
        is_complete.then(|| self.expected.remove(&ended.row))?
    }
}

// === impl Rail ===

impl Rail {
    fn set_state(&mut self, state: State) {
        self.state = state;
        self.show();
    }

    fn show(&self) {
        self.metrics.show(match &self.state {
            State::Open { ends, .. } if ends.unproven.is_empty() => RailState::Up,
            State::Accepting | State::Open { .. } => RailState::Probing,
            State::Refused(_) | State::Closed => RailState::Down,
        });
    }
}

// === impl RdmaReceiver ===

impl RdmaReceiver {
    pub(crate) fn new(
        fabric: Arc<Fabric>,
        session_id: SessionId,
        metrics: Arc<PeerMetrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            fabric,
            session_id,
            open: Mutex::new(Some(Open::default())),
            status: watch::Sender::default(),
            metrics,
        })
    }

    pub(crate) fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    pub(crate) fn nics(&self) -> Vec<NicInfo> {
        self.fabric.infos()
    }

    pub(crate) fn status(&self) -> watch::Receiver<RailStatus> {
        self.status.subscribe()
    }

    /// Destroys all ends, and then releases the memory that was open to writes.
    pub(crate) fn close(&self) {
        let open = self.open.lock().take();
        drop(open);
    }

    // === rails ===

    /// Connects ends to an offer beside the runtime, for the kernel may look for the peer for seconds;
    /// answers, also to an offer that came before.
    pub(crate) fn on_offer(self: &Arc<Self>, tasks: &Tasks, offer: RailOffer, outbox: Outbox) {
        // Offered again if the answer is lost.
        let answer_with = |answer| outbox.send(&ControlMessage::RailAnswer(answer)).ok();
        if offer.rail as usize >= LANES_MAX {
            answer_with(refusal(
                &offer,
                format!("there are at most {LANES_MAX} rails"),
            ));
            return;
        }
        {
            let mut open = self.open.lock();
            let Some(open) = open.as_mut() else {
                return;
            };
            match open.rails.get_mut(&offer.rail) {
                Some(known) if known.epoch == offer.epoch => {
                    if let State::Open { answer, .. } | State::Refused(answer) = &known.state {
                        answer_with(answer.clone());
                    }
                    return;
                }
                Some(known) if known.epoch > offer.epoch => return,
                // Ends of an epoch before go here, if prefill forgot it.
                Some(known) => {
                    known.epoch = offer.epoch;
                    known.set_state(State::Accepting);
                }
                None => {
                    let rail = self.new_rail(&offer);
                    open.rails.insert(offer.rail, rail);
                }
            }
        }
        let (receiver, spawner) = (Arc::clone(self), tasks.clone());
        tasks.spawn_blocking("rail", move || {
            let accepted = receiver.accept(&spawner, &offer, &outbox);
            if let Some(answer) = receiver.enter(&offer, accepted) {
                let _ = outbox.send(&ControlMessage::RailAnswer(answer));
            }
        });
    }

    /// The rail of a first offer. Later ones do not change how it is called.
    fn new_rail(&self, offer: &RailOffer) -> Rail {
        let own = self.fabric.nics.get(offer.nic as usize);
        let own = own.map_or("", |nic| nic.device.name());
        let rail = Rail {
            epoch: offer.epoch,
            state: State::Accepting,
            metrics: self.metrics.rail(own, &offer.from.device),
        };
        rail.show();
        rail
    }

    /// Puts a rail's new ends in place, unless it was closed meanwhile.
    fn enter(
        &self,
        offer: &RailOffer,
        accepted: Result<(RailAnswer, Ends), String>,
    ) -> Option<RailAnswer> {
        let (answer, state) = match accepted {
            Ok((answer, ends)) => (answer.clone(), State::Open { answer, ends }),
            Err(why) => {
                let (session, rail) = (&self.session_id, offer.rail);
                tracing::warn!(%session, rail, why, "refused rail");
                let answer = refusal(offer, why);
                (answer.clone(), State::Refused(answer))
            }
        };
        {
            let mut open = self.open.lock();
            let known = open.as_mut()?.rails.get_mut(&offer.rail)?;
            let is_awaited = known.epoch == offer.epoch && matches!(known.state, State::Accepting);
            if !is_awaited {
                return None;
            }
            known.set_state(state);
        }
        self.status.send_modify(|status| {
            status.rails = Some(offer.rails);
            match answer.refused.clone() {
                Some(why) => status.down.insert(offer.rail, why),
                None => status.down.remove(&offer.rail),
            };
        });
        Some(answer)
    }

    /// Closes a rail that prefill has given up; the answer.
    pub(crate) fn on_down(&self, down: RailDown) -> RailClosed {
        let RailDown {
            rail,
            epoch,
            reason,
            ..
        } = down;
        let (waiting, is_known) = match self.open.lock().as_mut() {
            Some(open) => (open.close(rail, epoch), open.rails.contains_key(&rail)),
            None => (Vec::new(), false),
        };
        // Of rail 0, also that there is none.
        if is_known || rail == 0 {
            let reason = reason.chars().take(REASON_CHARS).collect();
            self.status.send_modify(|status| {
                status.down.insert(rail, reason);
            });
        }
        RailClosed {
            session_id: self.session_id.clone(),
            rail,
            epoch,
            waiting,
        }
    }

    // === rooms ===

    /// Opens a room's memory to writes; false if that cannot be any more.
    pub(crate) fn expect(&self, row: u32, room: Arc<dyn InboundRoom>) -> bool {
        let mut open = self.open.lock();
        let (Some(open), Some(guard)) = (open.as_mut(), room.fence().enter()) else {
            return false;
        };
        let expected = Expected {
            room,
            count: Count::default(),
            guard,
        };
        open.expected.insert(row, expected);
        true
    }

    /// Prefill writes nothing more for a room.
    pub(crate) fn forget(&self, row: u32, generation: Generation) {
        let mut open = self.open.lock();
        let expected = open.as_mut().map(|open| &mut open.expected);
        let of_room = |expected: &Expected| expected.room.generation() == generation;
        if let Some(expected) = expected
            && expected.get(&row).is_some_and(of_room)
        {
            expected.remove(&row);
        }
    }
}
