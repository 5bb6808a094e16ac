//! Which lanes have ended for a room.

use crate::transport::rdma::immediate::Final;
use std::collections::BTreeSet;

/// One of a session's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub(crate) rail: u32,
    pub(crate) index: usize,
}

/// Lanes that have ended in the newest attempt.
#[derive(Debug, Default)]
pub(crate) struct Count {
    attempt: u8,
    ended: BTreeSet<Lane>,
}

// === impl Count ===

impl Count {
    /// What had ended on a rail counts no more: it was closed, and its pieces come again.
    pub(crate) fn forget_rail(&mut self, rail: u32) {
        self.ended.retain(|lane| lane.rail != rail);
    }

    /// A lane has ended; true once all have.
    pub(crate) fn add(&mut self, lane: Lane, ended: Final) -> bool {
        if ended.attempt < self.attempt {
            return false;
        }
        if ended.attempt > self.attempt {
            self.attempt = ended.attempt;
            self.ended.clear();
        }
        self.ended.insert(lane);
        self.ended.len() >= usize::from(ended.lanes)
    }
}

#[cfg(test)]
mod tests {
    //! Facts about counting.

    use super::*;

    fn lane(rail: u32) -> Lane {
        Lane { rail, index: 0 }
    }

    fn ended(attempt: u8, lanes: u8) -> Final {
        Final {
            row: 0,
            generation: 0,
            attempt,
            lanes,
        }
    }

    #[test]
    fn all_lanes_end_once_each() {
        let mut count = Count::default();
        assert!(!count.add(lane(0), ended(0, 2)));
        assert!(!count.add(lane(0), ended(0, 2)), "the same again");
        assert!(count.add(lane(1), ended(0, 2)));
    }

    #[test]
    fn what_ended_on_a_closed_rail_counts_no_more() {
        let mut count = Count::default();
        assert!(!count.add(lane(0), ended(0, 2)));
        count.forget_rail(0);
        assert!(!count.add(lane(1), ended(0, 2)));
        assert!(count.add(lane(2), ended(0, 2)));
    }

    #[test]
    fn another_attempt_starts_from_zero_and_an_old_one_counts_nothing() {
        let mut count = Count::default();
        assert!(!count.add(lane(0), ended(0, 2)));
        assert!(!count.add(lane(2), ended(1, 2)));
        assert!(!count.add(lane(1), ended(0, 2)), "of the attempt before");
        assert!(count.add(lane(0), ended(1, 2)));
    }
}
