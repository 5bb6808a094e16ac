//! Circuit breaker of one worker, a pure state machine: closed until failures in a row open it,
//! open for a while, then half open, where one request at a time probes it until enough succeed.

use crate::clock::Instant;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct CircuitConfig {
    pub(crate) enabled: bool,
    pub(crate) failures_to_open: u32,
    pub(crate) successes_to_close: u32,
    pub(crate) open_for: Duration,
    /// Failures further apart than this are not in a row.
    pub(crate) window: Duration,
}

#[derive(Debug)]
pub(crate) struct Circuit {
    config: CircuitConfig,
    state: State,
}

#[derive(Debug)]
enum State {
    Closed {
        failures: u32,
        first_failure: Option<Instant>,
    },
    Open {
        until: Instant,
    },
    HalfOpen {
        is_probed: bool,
        successes: u32,
    },
}

/// A request let through, to be settled by exactly one of `succeed`, `fail` and `abandon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Admission {
    is_probe: bool,
}

// === impl Circuit ===

impl Circuit {
    pub(crate) fn new(config: CircuitConfig) -> Self {
        Self {
            config,
            state: State::closed(),
        }
    }

    /// Whether `begin` would let a request through.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => until <= now,
            State::HalfOpen { is_probed, .. } => !is_probed,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// Lets a request through, or `None` while the circuit is open or a probe is under way.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<Admission> {
        if !self.admits(now) {
            return None;
        }
        let successes = match &self.state {
            State::Closed { .. } => return Some(Admission { is_probe: false }),
            State::Open { .. } => 0,
            State::HalfOpen { successes, .. } => *successes,
        };
        self.state = State::HalfOpen {
            is_probed: true,
            successes,
        };
        Some(Admission { is_probe: true })
    }

    pub(crate) fn succeed(&mut self, admission: Admission) {
        match &mut self.state {
            State::Closed {
                failures,
                first_failure,
            } => {
                *failures = 0;
                *first_failure = None;
            }
            State::HalfOpen {
                is_probed,
                successes,
            } if admission.is_probe => {
                *is_probed = false;
                *successes += 1;
                if *successes >= self.config.successes_to_close {
                    self.state = State::closed();
                }
            }
            // A request from before the circuit opened says nothing about the worker now.
            State::Open { .. } | State::HalfOpen { .. } => {}
        }
    }

    pub(crate) fn fail(&mut self, admission: Admission, now: Instant) {
        if !self.config.enabled {
            return;
        }
        match &mut self.state {
            State::Closed {
                failures,
                first_failure,
            } => {
                let window = self.config.window;
                if first_failure.is_none_or(|first| now.duration_since(first) > window) {
                    *first_failure = Some(now);
                    *failures = 0;
                }
                *failures += 1;
                if *failures >= self.config.failures_to_open {
                    self.open(now);
                }
            }
            State::HalfOpen { .. } if admission.is_probe => self.open(now),
            State::Open { .. } | State::HalfOpen { .. } => {}
        }
    }

    /// The request ended without a verdict on the worker.
    pub(crate) fn abandon(&mut self, admission: Admission) {
        if let State::HalfOpen { is_probed, .. } = &mut self.state
            && admission.is_probe
        {
            *is_probed = false;
        }
    }

    /// A restarted worker has failed no request.
    pub(crate) fn reset(&mut self) {
        self.state = State::closed();
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open {
            until: now + self.config.open_for,
        };
    }
}

// === impl State ===

impl State {
    fn closed() -> Self {
        Self::Closed {
            failures: 0,
            first_failure: None,
        }
    }
}

#[cfg(test)]
mod tests;
