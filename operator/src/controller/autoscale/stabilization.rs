//! From what is wanted to what is asked for next: windows, one replica less at a time, the donor
//! before the receiver, and no more of what no node has room for.

mod capacity;
mod donation;
mod situation;

pub(crate) use situation::Situation;

use super::decision::{Limit, Reason};
use super::need::Need;
use super::per_role::{PerRole, ROLES};
use super::solution::{Solution, solve};
use super::window::WindowMax;
use capacity::Capacity;
use donation::{Donations, Gain};
use pd_crds::PoolRole;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stabilization {
    /// Since when a pool has needed more than it is asked to have.
    above_since: PerRole<Option<Duration>>,
    /// Replicas that a pool could not do without.
    safe: PerRole<WindowMax>,
    capacity: Capacity,
    donations: Donations,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) to: PerRole<u32>,
    pub(crate) reason: Reason,
    pub(crate) limited_by: Limit,
}

/// A pool shrinks only if this many start times long it could have: a mistake costs one.
const STARTS_PER_WINDOW: u32 = 2;

// === impl Stabilization ===

impl Stabilization {
    pub(crate) fn next(&mut self, situation: &Situation) -> Move {
        let placed = PerRole::of(|role| self.capacity.bounds(role, situation));
        let spec = self.capacity.within(situation.spec);
        let situation = &Situation {
            spec: &spec,
            ..*situation
        };
        let base = situation.base(placed);
        // What one pool gives up is room for the other, if both can have it.
        let bounds = if spec.shares_nodes {
            spec.bounds
        } else {
            placed
        };
        let Solution {
            replicas: wanted,
            limited_by,
            needs,
        } = solve(situation.asked(base), bounds, &spec);
        let mut step = Move {
            to: base,
            reason: situation.why_base(base),
            limited_by,
        };
        for role in ROLES {
            let unknown = situation.grow[role].is_none();
            let short = self.capacity.is_short(role);
            step.limit_if(unknown, Limit::NoEstimate);
            step.limit_if(unknown && situation.is_stale(), Limit::StaleMetrics);
            step.limit_if(short, Limit::CapacityUnavailable);
            self.remember(role, situation);
            let (wanted, base) = (wanted[role], base[role]);
            if wanted > base {
                self.grow(role, wanted, situation, &mut step);
            } else {
                self.above_since[role] = None;
                let spare = base - bounds[role].min;
                self.shrink(role, wanted, spare, situation, &mut step);
            }
        }
        let gain = Gain {
            base,
            wanted,
            needs,
        };
        self.donations.keep_budget(&gain, situation, &mut step);
        step
    }

    /// Straight to what is needed, once that has been so for the window.
    fn grow(&mut self, role: PoolRole, wanted: u32, situation: &Situation, step: &mut Move) {
        let now = situation.now;
        let since = *self.above_since[role].get_or_insert(now);
        let held = since < now && now - since >= situation.spec.up_window;
        let gave = self.donations.binds(role, situation);
        if gave || !(held || situation.urgent[role]) {
            return step.limit_if(true, Limit::Stabilization);
        }
        step.to[role] = wanted;
        step.reason = situation.grow[role].map_or(step.reason, |need| need.reason);
    }

    /// What a pool could not do without, in the window that a shrink looks back over.
    fn remember(&mut self, role: PoolRole, situation: &Situation) {
        let Some(needed) = situation.shrink[role].filter(|_| !situation.is_stale()) else {
            return;
        };
        let most = situation.spec.bounds[role].max.saturating_add(1);
        self.safe[role].push(situation.now, needed.whole().min(most));
    }

    /// One replica less, if the rest could have done without it for the whole window; and those
    /// that wait for nodes, once they are not needed.
    fn shrink(
        &mut self,
        role: PoolRole,
        wanted: u32,
        spare: u32,
        situation: &Situation,
        step: &mut Move,
    ) {
        let (counts, base) = (situation.counts[role], step.to[role]);
        if self.capacity.is_cancelled(role, wanted < base, situation) {
            step.to[role] = wanted.max(counts.schedulable()).min(base);
            step.reason = Reason::FallingDemand;
            return;
        }
        let without = |need: Need| need.whole() < base;
        if spare == 0 || !situation.shrink[role].is_some_and(without) {
            return;
        }
        let window = situation.spec.down_window;
        let window = window.max(situation.starts[role] * STARTS_PER_WINDOW);
        let most = self.safe[role].get(situation.now, window);
        let held = most.is_some_and(|most| most < base);
        let early = (!held).then_some(Limit::Stabilization);
        if let Some(limit) = situation.hold(role).or(early) {
            return step.limit_if(true, limit);
        }
        step.to[role] = base - 1;
        if step.reason == Reason::Steady {
            step.reason = Reason::FallingDemand;
        }
    }
}

// === impl Move ===

impl Move {
    fn limit_if(&mut self, holds: bool, limit: Limit) {
        if holds {
            self.limited_by = self.limited_by.max(limit);
        }
    }
}
