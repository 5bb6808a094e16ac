//! What agents' figures say of the model and of its users: how fast a replica is, how many requests
//! come, how long they are.

pub(crate) mod arrivals;
pub(crate) mod decayed_ratio;
pub(crate) mod itl;
pub(crate) mod start_times;

use super::per_role::{PerRole, other};
use super::sample::Step;
use arrivals::Arrivals;
use decayed_ratio::DecayedRatio;
use itl::{ItlLine, ItlModel};
use pd_crds::PoolRole;
use serde::{Deserialize, Serialize};
use start_times::StartTimes;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Estimates {
    pub(crate) arrivals: Arrivals,
    starts: PerRole<StartTimes>,
    traffic: Traffic,
    speed: Speed,
}

/// What users send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Traffic {
    /// Prompt tokens of a request.
    input: DecayedRatio,
    /// Answer tokens of a request.
    output: DecayedRatio,
    /// Share of prompt tokens that the cache had.
    cached: DecayedRatio,
}

/// What a replica can do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Speed {
    /// Prompt tokens per second in steps.
    prefill: DecayedRatio,
    /// Seconds from token to token.
    interval: DecayedRatio,
    itl: ItlModel,
    /// KV bytes of a prompt token.
    kv_bytes: DecayedRatio,
    /// Fastest KV transfer of late, bytes per second.
    link: f64,
}

/// Answers, prompts and tokens after which the past counts as a third.
const REQUESTS_MEMORY: f64 = 100.0;
const PROMPT_TOKENS_MEMORY: f64 = 100_000.0;
const INTERVALS_MEMORY: f64 = 1000.0;
const BUSY_MEMORY_S: f64 = 30.0;
/// Time in steps before a speed is believed.
const BUSY_MIN_S: f64 = 0.1;
/// Bytes that show a link's speed: fewer measure its latency.
const LINK_BYTES_MIN: f64 = 1e6;
/// Of the link's best, what is left of it after a transfer that was slower: transfers that share
/// it are slower too, each by itself.
const LINK_KEPT: f64 = 0.999;

// === impl Estimates ===

impl Estimates {
    /// What users send does not depend on the replica that serves it.
    pub(crate) fn learn_traffic(&mut self, role: PoolRole, step: &Step) {
        let (traffic, grown) = (&mut self.traffic, &step.grown);
        match role {
            PoolRole::Prefill => {
                let (tokens, prompts) = (grown.prompt_tokens, grown.prompts);
                traffic.input.add(tokens, prompts, REQUESTS_MEMORY);
                let cached = grown.cached_tokens;
                traffic.cached.add(cached, tokens, PROMPT_TOKENS_MEMORY);
            }
            PoolRole::Decode => {
                let (tokens, answers) = (grown.answer_tokens, grown.answers);
                traffic.output.add(tokens, answers, REQUESTS_MEMORY);
            }
        }
    }

    /// What a replica that is not degraded can do.
    pub(crate) fn learn_speed(&mut self, role: PoolRole, step: &Step) {
        match role {
            PoolRole::Prefill => self.speed.learn_prefill(step),
            PoolRole::Decode => self.speed.learn_decode(step),
        }
    }

    /// A pool that runs something else now is known no more.
    pub(crate) fn forget(&mut self, role: PoolRole) {
        let fresh = Speed::default();
        self.starts[role] = StartTimes::default();
        match role {
            PoolRole::Prefill => self.speed.prefill = fresh.prefill,
            PoolRole::Decode => {
                (self.speed.interval, self.speed.itl) = (fresh.interval, fresh.itl);
            }
        }
    }

    pub(crate) fn started(&mut self, role: PoolRole, took: Duration) {
        self.starts[role].push(took);
    }

    /// How long a replica takes to start; until one of the pool has, as long as one of the other.
    pub(crate) fn start_time(&self, role: PoolRole) -> Duration {
        let known = [role, other(role)].map(|role| self.starts[role].p90());
        let own = known[0].or(known[1]);
        own.unwrap_or(Duration::ZERO)
    }

    pub(crate) fn input_len(&self) -> Option<f64> {
        self.traffic.input.get(1.0)
    }

    pub(crate) fn output_len(&self) -> Option<f64> {
        self.traffic.output.get(1.0)
    }

    /// Prompt tokens of a request that the cache lacks.
    pub(crate) fn computed_len(&self) -> Option<f64> {
        let cached = self.traffic.cached.get(1.0).unwrap_or(0.0).clamp(0.0, 1.0);
        Some(self.input_len()? * (1.0 - cached))
    }

    /// Prompt tokens per second of a prefill replica that is always busy.
    pub(crate) fn prefill_speed(&self) -> Option<f64> {
        let speed = self.speed.prefill.get(BUSY_MIN_S);
        speed.filter(|&speed| speed > 0.0)
    }

    /// Seconds between tokens, as they were of late.
    pub(crate) fn itl_s(&self) -> Option<f64> {
        self.speed.interval.get(1.0)
    }

    pub(crate) fn itl_line(&self, tokens: f64) -> Option<ItlLine> {
        self.speed.itl.line(tokens)
    }

    /// Seconds that the KV of a prompt token takes a replica's link.
    pub(crate) fn link_s(&self) -> Option<f64> {
        let bytes = self.speed.kv_bytes.get(1.0)?;
        (self.speed.link > 0.0).then(|| bytes / self.speed.link)
    }
}

// === impl Speed ===

impl Speed {
    fn learn_prefill(&mut self, step: &Step) {
        let grown = &step.grown;
        self.prefill
            .add(grown.prefill_tokens, grown.busy_s, BUSY_MEMORY_S);
        let (bytes, tokens) = (grown.kv_bytes, grown.prompt_tokens);
        self.kv_bytes.add(bytes, tokens, PROMPT_TOKENS_MEMORY);
        if bytes >= LINK_BYTES_MIN && grown.kv_s > 0.0 {
            self.link = (bytes / grown.kv_s).max(self.link * LINK_KEPT);
        }
    }

    fn learn_decode(&mut self, step: &Step) {
        let (intervals, interval_s) = (step.grown.intervals, step.grown.interval_s);
        self.interval.add(interval_s, intervals, INTERVALS_MEMORY);
        if intervals > 0.0 && step.running > 0.0 && interval_s > 0.0 {
            let itl_s = interval_s / intervals;
            self.itl.observe(step.running, step.kv_tokens, itl_s);
        }
    }
}
