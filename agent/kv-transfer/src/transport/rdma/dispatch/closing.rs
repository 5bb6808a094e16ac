//! A rail fails: its transfers wait until the peer has closed its ends.

use super::{Dispatch, InFlight, TransferId};
use crate::transport::rdma::immediate::ATTEMPT_MAX;

/// What a failed rail leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) idle: Vec<TransferId>,
    pub(crate) exhausted: Vec<TransferId>,
}

impl Dispatch {
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
