//! `WindowMax`: the most of a number over a time that slides.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// Falling values with the time each was last seen; as many at most as there are values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WindowMax {
    falling: VecDeque<(Duration, u32)>,
    since: Option<Duration>,
}

// === impl WindowMax ===

impl WindowMax {
    pub(crate) fn push(&mut self, now: Duration, value: u32) {
        self.since.get_or_insert(now);
        while self.falling.back().is_some_and(|(_, last)| *last <= value) {
            self.falling.pop_back();
        }
        self.falling.push_back((now, value));
    }

    /// The most since `window` ago; nothing if that is before the first.
    pub(crate) fn get(&mut self, now: Duration, window: Duration) -> Option<u32> {
        let from = now.saturating_sub(window);
        while self.falling.front().is_some_and(|(at, _)| *at < from) {
            self.falling.pop_front();
        }
        let covered = now.saturating_sub(self.since?) >= window;
        let (_, most) = self.falling.front().filter(|_| covered)?;
        Some(*most)
    }
}
