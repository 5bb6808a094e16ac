//! `StartTimes`: how long replicas took from their place on a node to their first request.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartTimes(VecDeque<Duration>);

const STARTS_MAX: usize = 16;

// === impl StartTimes ===

impl StartTimes {
    pub(crate) fn push(&mut self, took: Duration) {
        if self.0.len() == STARTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(took);
    }

    /// The 90th percentile by nearest rank; nothing while none is known.
    pub(crate) fn p90(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * 9).div_ceil(10);
        rank.checked_sub(1).map(|i| sorted[i])
    }
}
