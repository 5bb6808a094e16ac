//! Decode's end of a session's rails: queue pairs that accept prefill's writes, and the count of lanes
//! that have ended, by room.

pub(crate) mod count;

use super::completions::{Completions, CompletionsError};
use super::fabric::{Fabric, Nic};
use super::immediate::{Final, LANES_MAX, PROBE};
use super::wire::{to_end, to_endpoints};
use crate::decode_side::DecodeSide;
use crate::decode_side::room::ReceiverRoom;
use crate::fence::FenceGuard;
use count::{Count, Lane};
use parking_lot::Mutex;
use pd_protocol::control::{Generation, RailAnswer, RailOffer, SessionId};
use pd_verbs::queue_pair::Rtr;
use pd_verbs::{Completion, QueuePair, QueuePairOptions};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Immediates that a lane takes before the task has to post receives again.
const RECEIVE_DEPTH: u32 = 256;

/// See the module's header. Closing it ends every write of this session.
pub(crate) struct RdmaReceiver {
    fabric: Arc<Fabric>,
    session_id: SessionId,
    rails: Mutex<Option<BTreeMap<u32, Rail>>>,
    /// Rooms that wait for writes, by their rows.
    expected: Mutex<HashMap<u32, Expected>>,
    news: watch::Sender<News>,
}

/// How the rails are.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    pub(crate) is_up: bool,
    rails: Option<u32>,
    down: BTreeMap<u32, String>,
}

struct Rail {
    epoch: u32,
    answer: RailAnswer,
    /// None once closed.
    ends: Option<Ends>,
}

struct Ends {
    lanes: Vec<QueuePair<Rtr>>,
    /// Queue pairs whose probe has not come.
    unproven: BTreeSet<u32>,
    poller: AbortHandle,
}

struct Expected {
    room: Arc<ReceiverRoom>,
    count: Count,
    /// Prefill's NICs may write.
    _guard: FenceGuard,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.poller.abort();
    }
}

// === impl News ===

impl News {
    /// Why no rail will come up.
    pub(crate) fn hopeless(&self) -> Option<String> {
        let all = self.rails.unwrap_or(1) as usize;
        let is_hopeless = !self.is_up && self.down.len() >= all;
        let mut reasons: Vec<&str> = self.down.values().map(String::as_str).collect();
        reasons.dedup();
        is_hopeless.then(|| reasons.join("; "))
    }
}

// === impl RdmaReceiver ===

impl RdmaReceiver {
    pub(crate) fn new(fabric: Arc<Fabric>, session_id: SessionId) -> Arc<Self> {
        Arc::new(Self {
            fabric,
            session_id,
            rails: Mutex::new(Some(BTreeMap::new())),
            expected: Mutex::default(),
            news: watch::Sender::default(),
        })
    }

    pub(crate) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    // === rails ===

    /// Connects ends to an offer, within the runtime; the answer, also to an offer that came before.
    pub(crate) fn on_offer(
        self: &Arc<Self>,
        side: &Arc<DecodeSide>,
        offer: &RailOffer,
    ) -> Option<RailAnswer> {
        let mut rails = self.rails.lock();
        let rails = rails.as_mut()?;
        match rails.get(&offer.rail) {
            Some(known) if known.epoch == offer.epoch => return Some(known.answer.clone()),
            Some(known) if known.epoch > offer.epoch => return None,
            Some(_) | None => {}
        }
        // The one before ends here, if prefill forgot it.
        rails.remove(&offer.rail);
        let (answer, ends) = match self.accept(side, offer) {
            Ok((answer, ends)) => (answer, Some(ends)),
            Err(why) => (self.refusal(offer, why), None),
        };
        rails.insert(
            offer.rail,
            Rail {
                epoch: offer.epoch,
                answer: answer.clone(),
                ends,
            },
        );
        let refused = answer.refused.clone();
        self.news.send_modify(|news| {
            news.rails = Some(offer.rails);
            match refused {
                Some(why) => news.down.insert(offer.rail, why),
                None => news.down.remove(&offer.rail),
            };
        });
        Some(answer)
    }

    fn refusal(&self, offer: &RailOffer, why: String) -> RailAnswer {
        tracing::warn!(session = %self.session_id, rail = offer.rail, why, "a rail is refused");
        RailAnswer {
            session_id: self.session_id.clone(),
            rail: offer.rail,
            epoch: offer.epoch,
            ends: Vec::new(),
            regions: Vec::new(),
            refused: Some(why),
        }
    }

    fn accept(
        self: &Arc<Self>,
        side: &Arc<DecodeSide>,
        offer: &RailOffer,
    ) -> Result<(RailAnswer, Ends), String> {
        let nic = self.fabric.nics.get(offer.nic as usize);
        let nic = nic.ok_or_else(|| format!("decode has no NIC {}", offer.nic))?;
        let count = offer.ends.len();
        if count == 0 || count > LANES_MAX {
            return Err(format!(
                "a rail has 1 to {LANES_MAX} queue pairs, not {count}"
            ));
        }
        let depth = RECEIVE_DEPTH * u32::try_from(count).expect("no more than LANES_MAX");
        let completions = Completions::new(&nic.device, depth).map_err(|e| e.to_string())?;
        let mut ends = Vec::new();
        let mut lanes = Vec::new();
        for remote in to_endpoints(&offer.ends).map_err(|e| e.to_string())? {
            let queue = &completions.queue;
            let options = QueuePairOptions {
                send_depth: 0,
                receive_depth: RECEIVE_DEPTH,
                ranges_max: 1,
                inline_bytes: 0,
            };
            let lane = QueuePair::new(&nic.domain, queue, queue, options);
            let lane = lane.map_err(|e| e.to_string())?;
            let lane = lane.init(&nic.local, rand::random());
            let mut lane = lane.map_err(|e| e.to_string())?;
            lane.post_receives(RECEIVE_DEPTH)
                .map_err(|e| e.to_string())?;
            ends.push(to_end(&lane.endpoint()));
            let lane = lane.connect(&remote, self.fabric.path());
            lanes.push(lane.map_err(|e| e.to_string())?);
        }
        let answer = RailAnswer {
            session_id: self.session_id.clone(),
            rail: offer.rail,
            epoch: offer.epoch,
            ends,
            regions: nic.keys(),
            refused: None,
        };
        let ends = Ends {
            unproven: lanes.iter().map(QueuePair::qp_num).collect(),
            lanes,
            poller: self.poll(side, offer, Arc::clone(nic), completions),
        };
        Ok((answer, ends))
    }

    fn poll(
        self: &Arc<Self>,
        side: &Arc<DecodeSide>,
        offer: &RailOffer,
        nic: Arc<Nic>,
        completions: Completions,
    ) -> AbortHandle {
        let (receiver, side) = (Arc::downgrade(self), Arc::clone(side));
        let (rail, epoch) = (offer.rail, offer.epoch);
        let task = tokio::spawn(async move {
            let ended = listen(&receiver, &side, (rail, epoch), &completions).await;
            if let (Err(error), Some(receiver)) = (ended, receiver.upgrade()) {
                let device = nic.device.name();
                tracing::warn!(device, rail, %error, "a rail's NIC does not answer");
                receiver.end(rail, epoch);
            }
        });
        task.abort_handle()
    }

    /// Destroys this side's ends of a rail: nothing of it can land any more.
    fn end(&self, rail: u32, epoch: u32) {
        if let Some(rails) = self.rails.lock().as_mut()
            && let Some(known) = rails.get_mut(&rail)
            && known.epoch <= epoch
        {
            known.ends = None;
        }
    }

    /// Prefill has given a rail up. Gives the rooms that wait for writes.
    pub(crate) fn on_down(&self, rail: u32, epoch: u32, reason: String) -> Vec<Generation> {
        self.end(rail, epoch);
        let waiting = {
            let mut expected = self.expected.lock();
            let rooms = expected.values_mut().map(|expected| {
                expected.count.forget_rail(rail);
                expected.room.generation
            });
            rooms.collect()
        };
        self.news.send_modify(|news| {
            news.down.insert(rail, reason);
        });
        waiting
    }

    /// Destroys all ends, and then releases the memory that was open to writes.
    pub(crate) fn close(&self) {
        *self.rails.lock() = None;
        self.expected.lock().clear();
    }

    // === rooms ===

    /// Opens a room's memory to writes; false if that cannot be any more.
    pub(crate) fn expect(&self, row: u32, room: &Arc<ReceiverRoom>) -> bool {
        let rails = self.rails.lock();
        let Some(guard) = room.fence.enter().filter(|_| rails.is_some()) else {
            return false;
        };
        let expected = Expected {
            room: Arc::clone(room),
            count: Count::default(),
            _guard: guard,
        };
        self.expected.lock().insert(row, expected);
        true
    }

    /// Prefill writes nothing more for a room.
    pub(crate) fn forget(&self, row: u32, generation: Generation) {
        let mut expected = self.expected.lock();
        if expected
            .get(&row)
            .is_some_and(|e| e.room.generation == generation)
        {
            expected.remove(&row);
        }
    }

    fn on_completion(&self, side: &Arc<DecodeSide>, of: (u32, u32), completion: &Completion) {
        match completion {
            Completion::Immediate {
                qp_num, immediate, ..
            } => {
                if let Some(lane) = self.received(of, *qp_num, *immediate)
                    && let Some(ended) = Final::decode(*immediate)
                {
                    self.on_final(side, lane, ended);
                }
            }
            // Prefill notices, too, and takes the rail down.
            Completion::Failed(error) => tracing::warn!(%error, "a rail failed"),
            Completion::Written { .. } | Completion::Stray { .. } => {
                tracing::warn!(?completion, "a rail brought what nothing here asked for");
            }
        }
    }

    /// Makes room for another immediate on a lane, and notes that it carries. Which lane it was.
    fn received(&self, (rail, epoch): (u32, u32), qp_num: u32, immediate: u32) -> Option<Lane> {
        let mut rails = self.rails.lock();
        let known = rails.as_mut()?.get_mut(&rail)?;
        let ends = known.ends.as_mut().filter(|_| known.epoch == epoch)?;
        let mut lanes = ends.lanes.iter_mut().enumerate();
        let (index, lane) = lanes.find(|(_, lane)| lane.qp_num() == qp_num)?;
        if let Err(error) = lane.post_receives(1) {
            tracing::warn!(%error, "a lane takes no more");
        }
        if immediate == PROBE && ends.unproven.remove(&qp_num) && ends.unproven.is_empty() {
            tracing::info!(session = %self.session_id, rail, "a rail is up");
            self.news.send_modify(|news| news.is_up = true);
        }
        Some(Lane { rail, index })
    }

    fn on_final(&self, side: &Arc<DecodeSide>, lane: Lane, ended: Final) {
        let complete = {
            let mut expected = self.expected.lock();
            let Some(known) = expected.get_mut(&ended.row) else {
                return;
            };
            if Final::low_bits(known.room.generation) != ended.generation
                || !known.count.add(lane, ended)
            {
                return;
            }
            expected.remove(&ended.row)
        };
        if let Some(Expected { room, _guard, .. }) = complete {
            side.all_arrived(&room, &self.session_id);
        }
    }
}

async fn listen(
    receiver: &Weak<RdmaReceiver>,
    side: &Arc<DecodeSide>,
    of: (u32, u32),
    completions: &Completions,
) -> Result<(), CompletionsError> {
    loop {
        let taken = completions.next().await?;
        let Some(receiver) = receiver.upgrade() else {
            return Ok(());
        };
        for completion in &taken {
            receiver.on_completion(side, of, completion);
        }
    }
}
