//! One rail as prefill sees it, from the offer to the end and to the next offer.

mod fault;
mod opening;
mod posting;

use super::handle::Event;
use crate::clock::Instant;
use crate::failure::FailureReason;
use crate::metrics::{RailMetrics, RailState};
use crate::tasks::Tasks;
use crate::transport::outgoing::OutboundPeer;
use crate::transport::rdma::connecting::Connecting;
use crate::transport::rdma::conversion::to_end;
use crate::transport::rdma::fabric::Nic;
use fault::{of_device, of_work};
use pd_protocol::Backoff;
use pd_protocol::control::{ControlMessage, RailDown, RailOffer};
use pd_verbs::queue_pair::{Init, Rts};
use pd_verbs::{Completion, QueuePair, RemoteRegion};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Writes that a lane holds.
pub(super) const SEND_DEPTH: u32 = 128;
/// Names a probe among a lane's posts, which count from 0.
const PROBE_TAG: u64 = u64::MAX;
/// How long a rail that failed is left alone: doubled with each failure, up to the ceiling.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(30));

pub(super) struct Rail {
    number: u32,
    nic: Arc<Nic>,
    /// Decode's, by its place in the list that it sent.
    peer_nic: usize,
    lanes: usize,
    /// Counts its offers.
    epoch: u32,
    state: State,
    /// Failures since it carried anything.
    failures: u32,
    metrics: RailMetrics,
    tasks: Tasks,
}

enum State {
    /// Decode has not answered.
    Offered {
        ends: Vec<QueuePair<Init>>,
        poller: Poller,
        sent_at: Instant,
    },
    /// The peer of the first that waits was not found in time; it is looked for again.
    Connecting(Connecting, Target),
    /// Probes are on their way.
    Proving {
        ends: Ends,
        unproven: usize,
        since: Instant,
    },
    Up(Ends),
    /// Decode has not closed it.
    Closing {
        reason: String,
        sent_at: Instant,
    },
    Down {
        reason: String,
        until: Instant,
    },
}

/// What a rail writes to once it is connected.
struct Target {
    regions: Vec<RemoteRegion>,
    /// For probes.
    scratch: RemoteRegion,
    poller: Poller,
}

/// Connected ends, and what they write to.
struct Ends {
    lanes: Vec<QueuePair<Rts>>,
    regions: Vec<RemoteRegion>,
    _poller: Poller,
}

/// The task that waits for completions; ends when dropped.
struct Poller(AbortHandle);

/// What a completion proves.
pub(super) enum Proof {
    /// All lanes carry: the rail is up.
    Carries,
    Written {
        lane: usize,
        seq: u64,
    },
    Nothing,
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl Rail ===

impl Rail {
    pub(super) fn new(
        number: usize,
        (nic, peer_nic): (Arc<Nic>, usize),
        lanes: usize,
        (metrics, tasks): (RailMetrics, Tasks),
    ) -> Self {
        Self {
            number: u32::try_from(number).expect("few rails"),
            nic,
            peer_nic,
            lanes,
            epoch: 0,
            state: State::Down {
                reason: "it was not offered yet".to_owned(),
                until: Instant::now(),
            },
            failures: 0,
            metrics,
            tasks,
        }
    }

    /// Shows its state, and the bytes its lanes hold.
    pub(super) fn show(&mut self, in_flight_bytes: u64) {
        self.metrics.in_flight(in_flight_bytes);
        self.metrics.show(match &self.state {
            State::Offered { .. } | State::Connecting(..) | State::Proving { .. } => {
                RailState::Probing
            }
            State::Up(_) => RailState::Up,
            State::Closing { .. } | State::Down { .. } => RailState::Down,
        });
    }

    /// A piece was completed.
    pub(super) fn wrote(&self, bytes: u64, took: Duration) {
        self.metrics.completed(bytes, took);
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes
    }

    pub(super) fn is_of(&self, epoch: u32) -> bool {
        self.epoch == epoch
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Whether this side has queue pairs that decode's ends belong to.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.state,
            State::Connecting(..) | State::Proving { .. } | State::Up(_)
        )
    }

    /// Whether [`Self::connect_rest`] has something to do.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(..))
    }

    /// Whether decode's answer to this offer is awaited.
    pub(super) fn awaits_answer(&self, epoch: u32) -> bool {
        self.is_of(epoch) && matches!(self.state, State::Offered { .. })
    }

    /// Since when probes have been on their way.
    pub(super) fn unproven_since(&self) -> Option<Instant> {
        match self.state {
            State::Proving { since, .. } => Some(since),
            State::Offered { .. }
            | State::Connecting(..)
            | State::Up(_)
            | State::Closing { .. }
            | State::Down { .. } => None,
        }
    }

    /// What its port's speed promises.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let mbit = u32::try_from(self.nic.local.mbit_per_s?).ok()?;
        Some(f64::from(mbit) * 125_000.0)
    }

    pub(super) fn device(&self) -> &str {
        self.nic.device.name()
    }

    pub(super) fn why_down(&self) -> Option<String> {
        match &self.state {
            State::Closing { reason, .. } | State::Down { reason, .. } => {
                let (number, device) = (self.number, self.device());
                Some(format!("rail {number} over {device}: {reason}"))
            }
            State::Offered { .. }
            | State::Connecting(..)
            | State::Proving { .. }
            | State::Up(_) => None,
        }
    }

    /// The message that is due, if any; `rails` is how many there are.
    pub(super) fn tend(
        &mut self,
        peer: &OutboundPeer,
        rails: u32,
        events: &mpsc::Sender<Event>,
        (now, resend): (Instant, Duration),
    ) -> Option<ControlMessage> {
        let is_due = |sent_at: Instant| now.duration_since(sent_at) >= resend;
        match &mut self.state {
            State::Offered { sent_at, .. } if is_due(*sent_at) => {
                *sent_at = now;
                self.offer(peer, rails)
            }
            State::Closing { sent_at, reason } if is_due(*sent_at) => {
                *sent_at = now;
                let reason = reason.clone();
                Some(self.down(peer, reason))
            }
            State::Down { until, .. } if now >= *until => match self.make_ends(events, now) {
                Ok(()) => self.offer(peer, rails),
                Err(reason) => {
                    self.decline(FailureReason::device(reason));
                    None
                }
            },
            State::Offered { .. }
            | State::Connecting(..)
            | State::Proving { .. }
            | State::Up(_)
            | State::Closing { .. }
            | State::Down { .. } => None,
        }
    }

    fn offer(&self, peer: &OutboundPeer, rails: u32) -> Option<ControlMessage> {
        let State::Offered { ends, .. } = &self.state else {
            return None;
        };
        Some(ControlMessage::RailOffer(Box::new(RailOffer {
            session_id: peer.id().clone(),
            rail: self.number,
            rails,
            epoch: self.epoch,
            nic: u32::try_from(self.peer_nic).expect("few NICs"),
            from: self.nic.info(),
            ends: ends.iter().map(|end| to_end(&end.endpoint())).collect(),
        })))
    }

    fn down(&self, peer: &OutboundPeer, reason: String) -> ControlMessage {
        ControlMessage::RailDown(RailDown {
            session_id: peer.id().clone(),
            rail: self.number,
            epoch: self.epoch,
            reason,
        })
    }

    /// What a completion of this rail says; an error if the rail has failed.
    pub(super) fn settle(&mut self, completion: Completion) -> Result<Proof, FailureReason> {
        let (qp_num, tag) = match completion {
            Completion::Written { qp_num, tag } => (qp_num, tag),
            Completion::Failed(error) => return Err(of_work(&error)),
            Completion::Immediate { .. } | Completion::Stray { .. } => {
                return Err(of_device("it brought what nothing here asked for"));
            }
        };
        match &mut self.state {
            State::Proving { unproven, .. } if tag == PROBE_TAG => {
                *unproven -= 1;
                Ok(match *unproven {
                    0 => self.come_up(),
                    _ => Proof::Nothing,
                })
            }
            State::Up(ends) => {
                self.failures = 0;
                let mut lanes = ends.lanes.iter();
                let lane = lanes.position(|lane| lane.qp_num() == qp_num);
                Ok(lane.map_or(Proof::Nothing, |lane| Proof::Written { lane, seq: tag }))
            }
            State::Offered { .. }
            | State::Connecting(..)
            | State::Proving { .. }
            | State::Closing { .. }
            | State::Down { .. } => Ok(Proof::Nothing),
        }
    }

    fn come_up(&mut self) -> Proof {
        let between = State::Down {
            reason: String::new(),
            until: Instant::now(),
        };
        let State::Proving { ends, .. } = mem::replace(&mut self.state, between) else {
            unreachable!("the caller has looked");
        };
        self.state = State::Up(ends);
        Proof::Carries
    }

    /// Destroys the queue pairs; returns the message for decode, which may have its ends.
    pub(super) fn fail(
        &mut self,
        peer: &OutboundPeer,
        reason: &FailureReason,
    ) -> Option<ControlMessage> {
        let FailureReason { layer, message } = reason.clone();
        let down = self.take_down(peer, message);
        if down.is_some() {
            self.metrics.failed(layer);
        }
        down
    }

    fn take_down(&mut self, peer: &OutboundPeer, reason: String) -> Option<ControlMessage> {
        if matches!(self.state, State::Down { .. }) {
            return None;
        }
        if let State::Closing { reason: cause, .. } = &mut self.state {
            // Not connected; what else fails of it is a consequence.
            let is_news = cause.is_empty();
            if is_news {
                cause.clone_from(&reason);
            }
            return is_news.then(|| self.down(peer, reason));
        }
        self.state = State::Closing {
            reason: reason.clone(),
            sent_at: Instant::now(),
        };
        Some(self.down(peer, reason))
    }

    /// Decode has closed its ends; false if that is no news.
    pub(super) fn closed(&mut self, epoch: u32) -> bool {
        let State::Closing { reason, .. } = &self.state else {
            return false;
        };
        let is_of = self.is_of(epoch);
        if is_of {
            let reason = reason.clone();
            self.rest(reason);
        }
        is_of
    }

    /// It does not come up this time.
    pub(super) fn decline(&mut self, reason: FailureReason) {
        self.metrics.failed(reason.layer);
        self.rest(reason.message);
    }

    /// Leaves it alone for a while; nothing of it is left on either side.
    fn rest(&mut self, reason: String) {
        let backoff = BACKOFF.delay(self.failures);
        self.failures += 1;
        self.state = State::Down {
            reason,
            until: Instant::now() + backoff,
        };
    }
}

/// Until it is: decode has ends that it has to close.
fn not_connected() -> State {
    State::Closing {
        reason: String::new(),
        sent_at: Instant::now(),
    }
}
