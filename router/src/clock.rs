//! The seam to time: nothing else in the router names a clock or a timer.
//!
//! Deadlines and waits are tokio's, which stand still and jump ahead in a paused runtime, so that a
//! simulation of the whole system runs hours in seconds. Dates are [`unix_ns`]; a simulation that
//! needs them to follow its own time replaces that function.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout, timeout_at};

/// Wall-clock time, as the other processes of a request report it.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
