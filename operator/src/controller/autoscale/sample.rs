//! `Sample`: what one agent said of itself at one time, and `Step`: what happened between two.
//! Nonsense is refused here, so that no estimate ever sees it.

use super::exposition::{self, Exposition, ExpositionError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The figures of an agent's `/metrics` that scaling reads. Which of them move depends on the
/// role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// When it was taken, on the clock of `now`.
    pub(crate) at: Duration,
    pub(crate) counters: Counters,
    pub(crate) gauges: Gauges,
    /// It reports one of its GPUs as degraded.
    pub(crate) degraded: bool,
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

/// Why what an agent says is not believed.
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

/// By GPU and reason; agents without a GPU have no such series.
const DEGRADED: (&str, f64) = ("pdserve_gpu_degraded", 1.0);

/// No figure of an agent reaches this: ten years of the fastest network's bytes.
const VALUE_MAX: f64 = 1e20;
/// No counter grows by this in a second: bytes of a hundred 800 Gbit/s links.
const PER_SECOND_MAX: f64 = 1e13;

// === impl Sample ===

impl Sample {
    /// Reads an agent's `/metrics`.
    pub(crate) fn read(text: &str, at: Duration) -> Result<Self, SampleError> {
        let said = exposition::parse(text)?;
        let value = |name| value(&said, name);
        let counters = Counters {
            requests: value("pdserve_num_requests_total")?,
            prompts: value("pdserve_time_to_first_token_seconds_count")?,
            prompt_tokens: value("pdserve_prompt_tokens_total")?,
            cached_tokens: value("pdserve_cached_tokens_total")?,
            prefill_tokens: value("pdserve_prefill_tokens_total")?,
            busy_s: value("pdserve_step_time_seconds_sum")?,
            answers: value("pdserve_e2e_request_latency_seconds_count")?,
            answer_tokens: value("pdserve_generation_tokens_total")?,
            intervals: value("pdserve_inter_token_latency_seconds_count")?,
            interval_s: value("pdserve_inter_token_latency_seconds_sum")?,
            kv_bytes: value("pdserve_kv_transfer_bytes_total")?,
            kv_s: value("pdserve_kv_transfer_seconds_total")?,
        };
        let gauges = Gauges {
            running: value("pdserve_num_running_reqs")?,
            queue_tokens: value("pdserve_num_queue_tokens")?,
            queue_age_s: value("pdserve_queue_oldest_age_seconds")?,
            used_tokens: value("pdserve_num_used_tokens")?,
            reserved_tokens: value("pdserve_prealloc_tokens")?,
            capacity_tokens: value("pdserve_max_total_num_tokens")?,
        };
        let (used, capacity) = (gauges.used_tokens, gauges.capacity_tokens);
        if used > capacity {
            return Err(SampleError::BeyondCapacity { used, capacity });
        }
        Ok(Self {
            at,
            counters,
            gauges,
            degraded: said.labelled.contains(&DEGRADED),
        })
    }

    /// What happened since an earlier sample of the same process.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Step, SampleError> {
        let elapsed = self.at.checked_sub(earlier.at);
        let elapsed = elapsed.filter(|elapsed| !elapsed.is_zero());
        let seconds = elapsed.ok_or(SampleError::NotLater)?.as_secs_f64();
        let grown = self.counters.grown_since(&earlier.counters, seconds)?;
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

/// A figure that can be one.
fn value(said: &Exposition<'_>, name: &'static str) -> Result<f64, SampleError> {
    let value = *said.plain.get(name).ok_or(SampleError::Missing(name))?;
    if (0.0..VALUE_MAX).contains(&value) {
        Ok(value)
    } else {
        Err(SampleError::Nonsense { name, value })
    }
}

/// Requests that wait in a router for a place, from its `/metrics`.
pub(crate) fn read_router_queue(text: &str) -> Result<f64, SampleError> {
    value(&exposition::parse(text)?, "pd_router_queue_waiting")
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
    /// Tokens of requests that run; what is reserved for KV still to come waits on prefill.
    pub(crate) fn running_tokens(&self) -> f64 {
        (self.used_tokens - self.reserved_tokens).max(0.0)
    }
}
