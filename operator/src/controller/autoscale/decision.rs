//! `Decision`: how many replicas each pool is to have, why, and what kept it from more.

use super::per_role::{PerRole, ROLES};
use super::sample::SampleError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pd_crds::PoolRole;
use pd_crds::scaling::ScalingMode;
use pd_crds::status::{self, DECISIONS_MAX, MESSAGE_BYTES_MAX, PoolReplicas};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    pub(crate) mode: ScalingMode,
    pub(crate) from: PerRole<u32>,
    pub(crate) to: PerRole<u32>,
    pub(crate) reason: Reason,
    pub(crate) limited_by: Limit,
    /// Replicas that demand asks for; nothing where too little is known.
    pub(crate) needs: PerRole<Option<f64>>,
    pub(crate) traffic: Traffic,
    /// Replicas that serve and are degraded.
    pub(crate) degraded: PerRole<usize>,
    /// By UID, why a replica's figures were not believed.
    pub(crate) refused: Vec<(String, SampleError)>,
}

/// Requests per second, and their length where it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    pub(crate) rate: f64,
    pub(crate) input_len: Option<f64>,
    pub(crate) output_len: Option<f64>,
}

/// What asks for a number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// Nothing has to change.
    Steady,
    /// Prompt tokens per second.
    PrefillTokens,
    /// Prompt tokens that wait.
    PrefillQueue,
    /// KV bytes per second on the links.
    KvLink,
    /// KV of requests that run or will.
    KvOccupancy,
    /// Slots of recurrent state of requests that run or will.
    StateSlots,
    /// The goal for the time between tokens.
    TokenInterval,
    /// Replicas whose GPUs are degraded.
    Degraded,
    FallingDemand,
    /// GPUs go from one pool to the other.
    Rebalance,
    /// No node has room for what was asked for.
    CapacityUnavailable,
    /// The bounds or the budget have changed.
    Bounds,
}

/// What keeps a decision from going further; of several, the last here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Limit {
    None,
    /// Demand has to hold for a window.
    Stabilization,
    /// Another replica still starts or leaves.
    OneAtATime,
    /// A step of a rollout waits for its pods.
    Rollout,
    /// The other pool still holds the GPUs.
    Donor,
    Bounds,
    Budget,
    StaleMetrics,
    /// Too little is known of speed or demand.
    NoEstimate,
    CapacityUnavailable,
}

// === impl Decision ===

impl Decision {
    /// The replicas to set, where they differ and the mode has them set.
    pub(crate) fn change(&self) -> Option<PerRole<u32>> {
        (self.mode == ScalingMode::Auto && self.to != self.from).then_some(self.to)
    }

    /// One line for people.
    pub(crate) fn message(&self) -> String {
        let mut line = String::new();
        for role in ROLES {
            let (from, to) = (self.from[role], self.to[role]);
            let comma = if line.is_empty() { "" } else { ", " };
            let _infallible = write!(line, "{comma}{} {from}", name(role));
            if from != to {
                let _infallible = write!(line, " → {to}");
            }
            let _infallible = match self.needs[role] {
                Some(need) => write!(line, " (needs {need:.1})"),
                None => write!(line, " (need unknown)"),
            };
            if self.degraded[role] > 0 {
                let _infallible = write!(line, ", {} degraded", self.degraded[role]);
            }
        }
        let Traffic {
            rate,
            input_len,
            output_len,
        } = self.traffic;
        let _infallible = write!(line, " for {rate:.1} req/s");
        if let Some((input, output)) = input_len.zip(output_len) {
            let _infallible = write!(line, " of {input:.0} + {output:.0} tokens");
        }
        if let Some(why) = self.limited_by.explanation() {
            let _infallible = write!(line, "; {why}");
        }
        line.truncate(line.floor_char_boundary(MESSAGE_BYTES_MAX));
        line
    }

    /// Puts the decision before those of the status. Of decisions that change nothing only one is
    /// kept between two that do, the last that something new held up.
    pub(crate) fn append_to(&self, decisions: &mut Vec<status::Decision>, time: Time) {
        let record = self.record(time);
        let rests = |decision: &status::Decision| decision.from == decision.to;
        let last = decisions
            .first_mut()
            .filter(|last| rests(last) && rests(&record));
        match last {
            Some(last)
                if self.limited_by == Limit::None || last.limited_by == record.limited_by => {}
            Some(last) => *last = record,
            None if rests(&record) && self.limited_by == Limit::None => {}
            None => {
                decisions.insert(0, record);
                decisions.truncate(DECISIONS_MAX);
            }
        }
    }

    fn record(&self, time: Time) -> status::Decision {
        let replicas = |pools: PerRole<u32>| PoolReplicas {
            prefill: i32::try_from(pools.prefill).unwrap_or(i32::MAX),
            decode: i32::try_from(pools.decode).unwrap_or(i32::MAX),
        };
        status::Decision {
            time,
            from: replicas(self.from),
            to: replicas(self.to),
            reason: format!("{:?}", self.reason),
            limited_by: format!("{:?}", self.limited_by),
            message: self.message(),
        }
    }
}

// === impl Limit ===

impl Limit {
    fn explanation(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::Stabilization => "waits until that has held for its window",
            Self::OneAtATime => "waits until no replica starts or leaves",
            Self::Rollout => "waits for the rollout's pods",
            Self::Donor => "waits until the other pool has given up its GPUs",
            Self::Bounds => "held at maxReplicas",
            Self::Budget => "held at budget.maxGpus",
            Self::StaleMetrics => "some figures are missing or old, so nothing shrinks",
            Self::NoEstimate => "speed or demand is not known yet",
            Self::CapacityUnavailable => "no node has room for more; asks again later",
        })
    }
}

pub(crate) fn name(role: PoolRole) -> &'static str {
    match role {
        PoolRole::Prefill => "prefill",
        PoolRole::Decode => "decode",
    }
}
