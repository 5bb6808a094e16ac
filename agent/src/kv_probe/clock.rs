//! Duration of an interval, and processor time of all threads of this process.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Both clocks, in nanoseconds, each with its own epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reading {
    at_ns: u64,
    cpu_ns: u64,
}

/// The interval between two readings of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    started: Reading,
    ended: Reading,
}

// === impl Reading ===

impl Reading {
    pub(super) fn now() -> Self {
        Self {
            at_ns: nanoseconds(ClockId::Monotonic),
            cpu_ns: nanoseconds(ClockId::ProcessCPUTime),
        }
    }

    pub(super) fn until_now(self) -> Span {
        Span {
            started: self,
            ended: Self::now(),
        }
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

// === impl Span ===

impl Span {
    pub(super) fn seconds(self) -> f64 {
        seconds(self.started.at_ns, self.ended.at_ns)
    }

    pub(super) fn cpu_seconds(self) -> f64 {
        seconds(self.started.cpu_ns, self.ended.cpu_ns)
    }

    /// The shortest span that covers both.
    pub(super) fn and(self, other: Self) -> Self {
        let first = |a: Reading, b: Reading| if a.at_ns <= b.at_ns { a } else { b };
        let last = |a: Reading, b: Reading| if a.at_ns >= b.at_ns { a } else { b };
        Self {
            started: first(self.started, other.started),
            ended: last(self.ended, other.ended),
        }
    }
}

/// Readings also come from a peer, so their order is not guaranteed.
fn seconds(started_ns: u64, ended_ns: u64) -> f64 {
    std::time::Duration::from_nanos(ended_ns.saturating_sub(started_ns)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    //! Facts about spans.

    use super::*;

    fn mk_span(started: (u64, u64), ended: (u64, u64)) -> Span {
        let reading = |(at_ns, cpu_ns)| Reading { at_ns, cpu_ns };
        Span {
            started: reading(started),
            ended: reading(ended),
        }
    }

    #[test]
    fn spans_that_overlap_count_once() {
        let first = mk_span((1_000_000_000, 500_000_000), (3_000_000_000, 2_500_000_000));
        let second = mk_span(
            (2_000_000_000, 1_000_000_000),
            (5_000_000_000, 3_500_000_000),
        );
        for both in [first.and(second), second.and(first)] {
            assert!((both.seconds() - 4.0).abs() < 1e-9);
            assert!((both.cpu_seconds() - 3.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_span_that_ends_before_it_starts_took_no_time() {
        let backwards = mk_span((2, 2), (1, 1));
        assert!(backwards.seconds() == 0.0 && backwards.cpu_seconds() == 0.0);
    }
}
