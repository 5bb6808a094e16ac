//! How many replicas each pool is to have: a pure function of what is observed, what is
//! remembered, what the user asks for, and the time. The cluster and this machine share it; they
//! differ in who scrapes and who sets.
//!
//! Life of a decision: [`Observations`] → [`History`] learns → [`need`] (replicas, not whole) →
//! [`solution`] (whole, within bounds and budget) → [`stabilization`] (windows, one at a time, donor
//! first) → [`Decision`].

pub(crate) mod decision;
pub(crate) mod demand_model;
pub(crate) mod estimates;
pub(crate) mod exposition;
pub(crate) mod history;
pub(crate) mod need;
pub(crate) mod observations;
pub(crate) mod per_role;
pub(crate) mod sample;
pub(crate) mod slot_shortage;
pub(crate) mod solution;
pub(crate) mod spec;
pub(crate) mod stabilization;
pub(crate) mod window;

pub(crate) use decision::Decision;
pub(crate) use history::History;
pub(crate) use observations::Observations;
pub(crate) use spec::ScalingSpec;

use decision::{Limit, Reason, Traffic};
use demand_model::{GROW, SHRINK, needs};
use pd_crds::PoolRole;
use pd_crds::scaling::ScalingMode;
use per_role::PerRole;
use stabilization::{Move, Situation};
use std::time::Duration;

/// Of the goal for the first token: who has waited that long makes a pool grow at once.
const URGENT: f64 = 0.5;

/// Decides, and returns what the next decision has to remember. `now` is of any clock that only
/// goes forward, the one by which samples are dated.
pub(crate) fn decide(
    observations: &Observations,
    mut history: History,
    spec: &ScalingSpec,
    now: Duration,
) -> (Decision, History) {
    let refused = history.take_in(observations, now);
    let grow = needs(observations, &history, spec, GROW, now);
    let estimates = &history.estimates;
    let traffic = Traffic {
        rate: estimates.arrivals.rate(),
        input_len: estimates.input_len(),
        output_len: estimates.output_len(),
    };
    let Move {
        to,
        reason,
        limited_by,
    } = match spec.mode {
        ScalingMode::Auto | ScalingMode::Advise => {
            let situation = Situation {
                observations,
                spec,
                counts: PerRole::of(|role| observations.counts(role, now)),
                grow,
                shrink: needs(observations, &history, spec, SHRINK, now),
                starts: PerRole::of(|role| estimates.start_time(role)),
                urgent: PerRole::of(|role| is_urgent(observations, spec, role, now)),
                now,
            };
            history.stabilization.next(&situation)
        }
        ScalingMode::External | ScalingMode::Off => Move {
            to: observations.targets,
            reason: Reason::Steady,
            limited_by: Limit::None,
        },
    };
    let decision = Decision {
        mode: spec.mode,
        from: observations.targets,
        to,
        reason,
        limited_by,
        needs: PerRole::of(|role| grow[role].map(|need| need.replicas)),
        traffic,
        degraded: PerRole::of(|role| observations.degraded(role, now).len()),
        refused,
    };
    (decision, history)
}

fn is_urgent(
    observations: &Observations,
    spec: &ScalingSpec,
    role: PoolRole,
    now: Duration,
) -> bool {
    let Some(ttft_s) = spec.ttft_s else {
        return false;
    };
    let counts = observations.counts(role, now);
    let mut gauges = observations.gauges(role, now);
    let late = gauges.any(|gauges| gauges.queue_age_s > URGENT * ttft_s);
    late && counts.starting + counts.unschedulable == 0
}

#[cfg(test)]
mod tests;
