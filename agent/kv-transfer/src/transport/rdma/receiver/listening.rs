//! Decode takes the completions of a rail. An immediate says that a lane carries (a probe) or that it has ended
//! for a room (`Final`); with the last lane of a room all that this prefill rank writes is in place, and the
//! room learns it by `InboundRoom::rank_arrived`.

use super::{Expected, RailEpoch, RdmaReceiver};
use crate::control::outbox::Outbox;
use crate::failure::FailureLayer;
use crate::transport::rdma::completions::{Completions, CompletionsError};
use crate::transport::rdma::immediate::Final;
use pd_protocol::control::{ControlMessage, RailDown};
use pd_verbs::{Completion, WcStatus};
use std::sync::Weak;

/// Handles a rail's completions until it is closed or its NIC does not answer; then notifies prefill.
pub(super) async fn listen(
    receiver: Weak<RdmaReceiver>,
    of: RailEpoch,
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
            receiver.on_completion(of, completion);
        }
    };
    let Some(receiver) = receiver.upgrade() else {
        return;
    };
    let RailEpoch { rail, epoch } = of;
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

impl RdmaReceiver {
    fn on_completion(&self, of: RailEpoch, completion: &Completion) {
        match completion {
            Completion::Immediate {
                qp_num, immediate, ..
            } => self.on_immediate(of, (*qp_num, *immediate)),
            // What a failed lane held.
            Completion::Failed(error) if error.status == WcStatus::WR_FLUSH_ERR => {}
            // Prefill notices, too, and takes the rail down.
            Completion::Failed(error) => tracing::warn!(%error, "rail failed"),
            Completion::Written { .. } | Completion::Stray { .. } => {
                tracing::warn!(?completion, "rail brought an unexpected completion");
            }
        }
    }

    fn on_immediate(&self, of: RailEpoch, (qp_num, immediate): (u32, u32)) {
        let (is_up, complete) = {
            let mut open = self.open.lock();
            let Some(open) = open.as_mut() else {
                return;
            };
            let Some((lane, is_up)) = open.received(of, qp_num, immediate) else {
                return;
            };
            let ended = Final::decode(immediate);
            (is_up, ended.and_then(|ended| open.count(lane, ended)))
        };
        if is_up {
            tracing::info!(session = %self.session_id, rail = of.rail, "rail is up");
            self.status.send_modify(|status| status.is_up = true);
        }
        if let Some(Expected { room, guard, .. }) = complete {
            room.rank_arrived(&self.session_id);
            // Only now: `rank_arrived` flushes and reads the room's memory, which is `released` once the fence
            // is closed and no guard is left.
            drop(guard);
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
