//! Whole replicas of both pools together, within bounds and budget: the fewest that meet both
//! needs, or, where the budget does not allow it, those by which the worse served pool is served
//! best. Never more than a need asks for.

use super::decision::Limit;
use super::need::whole;
use super::per_role::{PerRole, ROLES};
use super::spec::{Bounds, ScalingSpec};

/// Replicas that a pool needs for what comes, and for what comes and what waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) flow: f64,
    pub(crate) all: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Solution {
    pub(crate) replicas: PerRole<u32>,
    pub(crate) limited_by: Limit,
    /// The needs by which it was found.
    pub(crate) needs: PerRole<f64>,
}

/// Shares of the needs that are met, the worse first.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Shares {
    pub(crate) worse: f64,
    pub(crate) better: f64,
}

/// `bounds` are the spec's or narrower. What comes goes before what waits: a queue passes.
pub(crate) fn solve(
    asked: PerRole<Asked>,
    bounds: PerRole<Bounds>,
    spec: &ScalingSpec,
) -> Solution {
    let [all, flow] = [|asked: &Asked| asked.all, |asked: &Asked| asked.flow]
        .map(|of| PerRole::of(|role| of(&asked[role])));
    let [full, flowing] =
        [all, flow].map(|needs| PerRole::of(|role| bounds[role].clamp(whole(needs[role]))));
    let least = PerRole::of(|role| bounds[role].min);
    let (replicas, needs) = if spec.affords(full) {
        (full, all)
    } else if spec.affords(flowing) {
        (share_out(all, flowing, full, spec), all)
    } else {
        (share_out(flow, least, flowing, spec), flow)
    };
    let cut = |role| whole(all[role]) > full[role];
    let limited_by = if replicas != full {
        Limit::Budget
    } else if ROLES.into_iter().any(cut) {
        Limit::Bounds
    } else {
        Limit::None
    };
    Solution {
        replicas,
        limited_by,
        needs,
    }
}

/// Tries each number of prefill replicas with as many of decode as are left for it.
fn share_out(
    needs: PerRole<f64>,
    least: PerRole<u32>,
    most: PerRole<u32>,
    spec: &ScalingSpec,
) -> PerRole<u32> {
    let max_gpus = u64::from(spec.max_gpus.unwrap_or(u32::MAX));
    let fitting = (least.prefill..=most.prefill).filter_map(|prefill| {
        let left = max_gpus.checked_sub(spec.cost(PerRole { prefill, decode: 0 }))?;
        let decode = left / u64::from(spec.gpus.decode);
        let decode = u32::try_from(decode).unwrap_or(u32::MAX).min(most.decode);
        (decode >= least.decode).then_some(PerRole { prefill, decode })
    });
    let best = fitting.fold(None, |best: Option<(Shares, PerRole<u32>)>, replicas| {
        let shares = Shares::of(replicas, needs);
        match best {
            Some((most, _)) if most >= shares => best,
            _ => Some((shares, replicas)),
        }
    });
    best.map_or(least, |(_, replicas)| replicas)
}

// === impl Asked ===

impl Asked {
    pub(crate) fn just(replicas: f64) -> Self {
        Self {
            flow: replicas,
            all: replicas,
        }
    }
}

// === impl Shares ===

impl Shares {
    pub(crate) fn of(replicas: PerRole<u32>, needs: PerRole<f64>) -> Self {
        let met = PerRole::of(|role| {
            let (have, need) = (f64::from(replicas[role]), needs[role]);
            if have >= need { 1.0 } else { have / need }
        });
        Self {
            worse: met.prefill.min(met.decode),
            better: met.prefill.max(met.decode),
        }
    }
}
