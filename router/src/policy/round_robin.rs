//! `round_robin`: one worker after the other.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the requests of a pool. A worker that joins or leaves shifts the turn, never skips one.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    turn: AtomicUsize,
}

// === impl RoundRobin ===

impl RoundRobin {
    pub(super) fn next(&self, len: usize) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % len
    }
}
