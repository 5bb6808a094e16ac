//! `Sample`: what one worker said of itself at one time, and `Step`: what happened between two. What differs by engine is in a
//! file of its own; which engine it is the names of the series say. Nonsense is refused here, so that no estimate ever sees it.

mod pdserve;
mod series;
mod sglang;
mod vllm;

use super::exposition::{self, ExpositionError};
use serde::{Deserialize, Serialize};
use series::{Series, checked};
use std::time::Duration;

/// The figures of a worker's `/metrics` that scaling reads. Which of them move depends on the
/// role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// When it was taken, on the clock of `now`.
    pub(crate) at: Duration,
    pub(crate) counters: Counters,
    pub(crate) gauges: Gauges,
    /// It reports one of its GPUs as degraded.
    pub(crate) degraded: bool,
    /// `busy_s` adds up the times of requests, not of steps.
    #[serde(default)]
    pub(crate) busy_overlaps: bool,
}

/// Only ever grow while the process lives; between two samples, by how much they grew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) requests: f64,
    /// Prompts computed, or received.
    pub(crate) prompts: f64,
    pub(crate) prompt_tokens: f64,
    pub(crate) cached_tokens: f64,
    /// Prompt tokens that steps computed.
    pub(crate) prefill_tokens: f64,
    /// Time in steps.
    pub(crate) busy_s: f64,
    pub(crate) answers: f64,
    pub(crate) answer_tokens: f64,
    /// Token to token: how often, and time in all.
    pub(crate) intervals: f64,
    pub(crate) interval_s: f64,
    pub(crate) kv_bytes: f64,
    pub(crate) kv_s: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gauges {
    pub(crate) running: f64,
    /// Tokens that wait for a step, or on decode for memory.
    pub(crate) queue_tokens: f64,
    pub(crate) queue_age_s: f64,
    pub(crate) used_tokens: f64,
    /// Of those, reserved for KV that has not come yet.
    pub(crate) reserved_tokens: f64,
    pub(crate) capacity_tokens: f64,
    /// Of a model with recurrent state.
    #[serde(default)]
    pub(crate) slots: Option<StateSlots>,
}

/// Slots of recurrent state: each request that a worker holds has one, however long it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StateSlots {
    /// By requests; what is cached for others is as good as free.
    pub(crate) used: f64,
    pub(crate) total: f64,
}

/// What happened on a replica between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) seconds: f64,
    pub(crate) grown: Counters,
    /// Means of the two samples.
    pub(crate) running: f64,
    pub(crate) kv_tokens: f64,
    /// By how much the queue grew, in tokens.
    pub(crate) queue_grown: f64,
}

/// Why what a worker says is not believed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum SampleError {
    #[error(transparent)]
    Exposition(#[from] ExpositionError),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{name} is {value}")]
    Nonsense { name: &'static str, value: f64 },
    #[error("{used} tokens are in use of {capacity}")]
    BeyondCapacity { used: f64, capacity: f64 },
    #[error("{name} went from {from} back to {to}")]
    Backwards {
        name: &'static str,
        from: f64,
        to: f64,
    },
    #[error("{name} grew by {by} in {seconds} s")]
    TooFast {
        name: &'static str,
        by: f64,
        seconds: f64,
    },
    #[error("two samples of one time")]
    NotLater,
}

/// The share of a pool in use from which on it counts as full: with requests that come and go it is never full for long.
const FULL: f64 = 0.95;

/// No counter grows by this in a second: bytes of a hundred 800 Gbit/s links.
const PER_SECOND_MAX: f64 = 1e13;

// === impl Sample ===

impl Sample {
    /// Reads a worker's `/metrics`.
    pub(crate) fn read(text: &str, at: Duration) -> Result<Self, SampleError> {
        let said = Series::of(exposition::parse(text)?);
        if said.count(sglang::CAPACITY) > 0.0 {
            let counters = sglang::counters(&said)?;
            return Ok(Self {
                at,
                counters,
                gauges: sglang::gauges(&said, &counters)?.within_capacity(),
                ..Self::default()
            });
        }
        if said.count(vllm::CONFIG) > 0.0 {
            let counters = vllm::counters(&said)?;
            return Ok(Self {
                at,
                counters,
                gauges: vllm::gauges(&said, &counters)?.within_capacity(),
                busy_overlaps: true,
                ..Self::default()
            });
        }
        let (counters, gauges) = (pdserve::counters(&said)?, pdserve::gauges(&said)?);
        let (used, capacity) = (gauges.used_tokens, gauges.capacity_tokens);
        if used > capacity {
            return Err(SampleError::BeyondCapacity { used, capacity });
        }
        Ok(Self {
            at,
            counters,
            gauges,
            degraded: pdserve::is_degraded(&said),
            busy_overlaps: false,
        })
    }

    /// What happened since an earlier sample of the same process.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Step, SampleError> {
        let elapsed = self.at.checked_sub(earlier.at);
        let elapsed = elapsed.filter(|elapsed| !elapsed.is_zero());
        let seconds = elapsed.ok_or(SampleError::NotLater)?.as_secs_f64();
        let mut grown = self.counters.grown_since(&earlier.counters, seconds)?;
        if self.busy_overlaps {
            let runs = self.gauges.running > 0.0 && earlier.gauges.running > 0.0;
            grown.busy_s = if runs {
                seconds
            } else {
                grown.busy_s.min(seconds)
            };
        }
        let mean = |of: fn(&Gauges) -> f64| f64::midpoint(of(&self.gauges), of(&earlier.gauges));
        Ok(Step {
            seconds,
            grown,
            running: mean(|gauges| gauges.running),
            kv_tokens: mean(Gauges::running_tokens),
            queue_grown: self.gauges.queue_tokens - earlier.gauges.queue_tokens,
        })
    }
}

/// Requests that wait in a router for a place, from its `/metrics`.
pub(crate) fn read_router_queue(text: &str) -> Result<f64, SampleError> {
    Series::of(exposition::parse(text)?).value("pd_router_queue_waiting")
}

// === impl Counters ===

impl Counters {
    fn grown_since(&self, earlier: &Self, seconds: f64) -> Result<Self, SampleError> {
        let grown = |name, of: fn(&Self) -> f64| {
            let (from, to) = (of(earlier), of(self));
            let by = to - from;
            if by < 0.0 {
                Err(SampleError::Backwards { name, from, to })
            } else if by > seconds * PER_SECOND_MAX {
                Err(SampleError::TooFast { name, by, seconds })
            } else {
                Ok(by)
            }
        };
        Ok(Self {
            requests: grown("requests", |c| c.requests)?,
            prompts: grown("prompts", |c| c.prompts)?,
            prompt_tokens: grown("prompt tokens", |c| c.prompt_tokens)?,
            cached_tokens: grown("cached tokens", |c| c.cached_tokens)?,
            prefill_tokens: grown("prefill tokens", |c| c.prefill_tokens)?,
            busy_s: grown("seconds in steps", |c| c.busy_s)?,
            answers: grown("answers", |c| c.answers)?,
            answer_tokens: grown("answer tokens", |c| c.answer_tokens)?,
            intervals: grown("token intervals", |c| c.intervals)?,
            interval_s: grown("seconds between tokens", |c| c.interval_s)?,
            kv_bytes: grown("KV bytes", |c| c.kv_bytes)?,
            kv_s: grown("seconds of KV transfer", |c| c.kv_s)?,
        })
    }
}

// === impl Gauges ===

impl Gauges {
    /// Of an engine whose figures are of different moments.
    fn within_capacity(mut self) -> Self {
        self.used_tokens = self.used_tokens.min(self.capacity_tokens);
        self.reserved_tokens = self.reserved_tokens.min(self.used_tokens);
        self
    }

    /// Tokens of requests that run; what is reserved for KV still to come waits on prefill.
    pub(crate) fn running_tokens(&self) -> f64 {
        (self.used_tokens - self.reserved_tokens).max(0.0)
    }

    /// Whether requests wait for slots of recurrent state although there is memory for their KV.
    pub(crate) fn lacks_slots(&self) -> bool {
        let is_full = |slots: StateSlots| slots.used >= FULL * slots.total;
        let has_pages = self.used_tokens < FULL * self.capacity_tokens;
        self.slots.is_some_and(is_full) && has_pages && self.queue_tokens > 0.0
    }
}
