//! `--max-concurrent-requests`: how many requests are in flight at most.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use tokio::sync::Semaphore;

/// Bound of a router that bounds nothing.
pub(super) const UNBOUNDED: usize = Semaphore::MAX_PERMITS;

/// Requests in flight for each that the workers run at once. While one is decoded another has its
/// prompt computed and its KV moved, and as many again wait in the engines, which fill their next
/// batch from them without asking; more than that only age there, where no router can send them to
/// the worker that is free first.
const IN_FLIGHT_PER_RUNNING: usize = 4;

/// SGLang's router has numbers and -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConcurrencyLimit {
    /// From what the ready workers say that they run, as they come and go.
    Auto,
    At(NonZeroUsize),
    Unbounded,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give `auto`, a number of requests above 0, or -1 for no bound")]
pub(crate) struct LimitError;

// === impl ConcurrencyLimit ===

impl ConcurrencyLimit {
    /// For ready workers that run `running_max` at once. With none ready there is nothing to
    /// protect, and what comes waits for a worker.
    pub(super) fn bound(self, running_max: usize) -> usize {
        let bound = match self {
            Self::Auto if running_max == 0 => UNBOUNDED,
            Self::Auto => running_max.saturating_mul(IN_FLIGHT_PER_RUNNING),
            Self::At(bound) => bound.get(),
            Self::Unbounded => UNBOUNDED,
        };
        bound.min(UNBOUNDED)
    }
}

impl FromStr for ConcurrencyLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        match text {
            "auto" => Ok(Self::Auto),
            "-1" => Ok(Self::Unbounded),
            number => number.parse().map(Self::At).map_err(|_| LimitError),
        }
    }
}

impl fmt::Display for ConcurrencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::At(bound) => bound.fmt(f),
            Self::Unbounded => f.write_str("-1"),
        }
    }
}
