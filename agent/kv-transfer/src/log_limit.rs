//! Lines about peers that misbehave: some for each stretch of time, and then a number instead.

use crate::clock::Instant;
use parking_lot::Mutex;
use std::time::Duration;

/// Lines in each `STRETCH`.
const LINES_MAX: u32 = 20;
const STRETCH: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    now: Mutex<Stretch>,
}

#[derive(Debug, Default)]
struct Stretch {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

// === impl LogLimit ===

impl LogLimit {
    /// Whether a line may be written; if so, how many were left out before it.
    pub(crate) fn allows(&self) -> Option<u64> {
        let mut stretch = self.now.lock();
        let now = Instant::now();
        let began = *stretch.began.get_or_insert(now);
        if now.duration_since(began) >= STRETCH {
            stretch.began = Some(now);
            stretch.lines = 0;
        }
        if stretch.lines == LINES_MAX {
            stretch.left_out += 1;
            return None;
        }
        stretch.lines += 1;
        Some(std::mem::take(&mut stretch.left_out))
    }
}

#[cfg(test)]
mod tests;
