//! Decode's end of a rail is made: queue pairs, the connection to prefill's, the task of `listening.rs`.

use super::listening::listen;
use super::{Ends, RailEpoch, RdmaReceiver};
use crate::control::outbox::Outbox;
use crate::tasks::Tasks;
use crate::transport::rdma::completions::Completions;
use crate::transport::rdma::connecting::{Connecting, Step};
use crate::transport::rdma::conversion::{to_end, to_endpoints};
use crate::transport::rdma::immediate::LANES_MAX;
use pd_protocol::control::{RailAnswer, RailOffer};
use pd_verbs::queue_pair::Rtr;
use pd_verbs::{QueuePair, QueuePairOptions};
use std::sync::Arc;

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
        let of = RailEpoch {
            rail: offer.rail,
            epoch: offer.epoch,
        };
        let listening = listen(Arc::downgrade(self), of, completions, outbox.clone());
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
}
