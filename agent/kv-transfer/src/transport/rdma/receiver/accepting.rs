//! Decode's end of a rail is made: queue pairs, the connection to prefill's, the task that takes completions.

use super::{Ends, RdmaReceiver};
use crate::control::socket::Outbox;
use crate::failure::FailureLayer;
use crate::tasks::Tasks;
use crate::transport::rdma::completions::{Completions, CompletionsError};
use crate::transport::rdma::connecting::{Connecting, Step};
use crate::transport::rdma::immediate::LANES_MAX;
use crate::transport::rdma::wire::{to_end, to_endpoints};
use pd_protocol::control::{ControlMessage, RailAnswer, RailDown, RailOffer};
use pd_verbs::queue_pair::Rtr;
use pd_verbs::{QueuePair, QueuePairOptions};
use std::sync::{Arc, Weak};

/// Immediates that a lane takes before the task has to post receives again.
const RECEIVE_DEPTH: u32 = 256;

impl RdmaReceiver {
    pub(super) fn accept(
        self: &Arc<Self>,
        tasks: &Tasks,
        offer: &RailOffer,
        outbox: &Outbox,
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
            lanes.push((lane, remote));
        }
        let lanes = self.connect(Connecting::new(lanes))?;
        let answer = RailAnswer {
            session_id: self.session_id.clone(),
            rail: offer.rail,
            epoch: offer.epoch,
            ends,
            regions: nic.keys(),
            refused: None,
        };
        let (own, prefill) = (nic.device.name(), &offer.from.device);
        tracing::debug!(rail = offer.rail, own, prefill, "connected rail");
        let listening = listen(
            Arc::downgrade(self),
            (offer.rail, offer.epoch),
            completions,
            outbox.clone(),
        );
        let ends = Ends {
            unproven: lanes.iter().map(QueuePair::qp_num).collect(),
            lanes,
            poller: tasks.spawn("rail completions", listening),
        };
        Ok((answer, ends))
    }

    /// Connects all lanes, for as long as the session wants rails.
    fn connect(&self, mut lanes: Connecting) -> Result<Vec<QueuePair<Rtr>>, String> {
        loop {
            match lanes.step(self.fabric.path()) {
                Ok(Step::Connected(lanes)) => return Ok(lanes),
                Ok(Step::Later(rest)) if self.open.lock().is_some() => lanes = rest,
                Ok(Step::Later(_)) => return Err("the session has ended".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// A NIC here has failed under a rail.
    fn on_nic_failed(&self, rail: u32) {
        let open = self.open.lock();
        let known = open.as_ref().and_then(|open| open.rails.get(&rail));
        if let Some(known) = known {
            known.metrics.failed(FailureLayer::Device);
        }
    }
}

/// Handles a rail's completions until it is closed or its NIC does not answer; then notifies prefill.
async fn listen(
    receiver: Weak<RdmaReceiver>,
    (rail, epoch): (u32, u32),
    completions: Completions,
    outbox: Outbox,
) {
    let error: CompletionsError = loop {
        let taken = match completions.next().await {
            Ok(taken) => taken,
            Err(error) => break error,
        };
        let Some(receiver) = receiver.upgrade() else {
            return;
        };
        for completion in &taken {
            receiver.on_completion((rail, epoch), completion);
        }
    };
    let Some(receiver) = receiver.upgrade() else {
        return;
    };
    let session = &receiver.session_id;
    tracing::warn!(%session, rail, %error, "NIC of a rail does not answer");
    receiver.on_nic_failed(rail);
    let closed = receiver.on_down(RailDown {
        session_id: session.clone(),
        rail,
        epoch,
        reason: error.to_string(),
    });
    // Prefill notices by its own completions if this is lost.
    let _ = outbox.send(&ControlMessage::RailClosed(closed));
}
