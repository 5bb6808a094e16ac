//! The seam to time: nothing else in this crate reads a clock. It is tokio's, which tests pause and a simulation
//! drives.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use tokio::time::Instant;

/// Nanoseconds since 1970, for timelines that several processes write.
pub(crate) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
