//! `Situation`: what is known when a step is chosen.

use crate::controller::autoscale::decision::{Limit, Reason};
use crate::controller::autoscale::need::Need;
use crate::controller::autoscale::observations::{Counts, Observations};
use crate::controller::autoscale::per_role::{PerRole, ROLES};
use crate::controller::autoscale::solution::{Asked, solve};
use crate::controller::autoscale::spec::{Bounds, ScalingSpec};
use pd_crds::PoolRole;
use std::time::Duration;

pub(crate) struct Situation<'a> {
    pub(crate) observations: &'a Observations,
    pub(crate) spec: &'a ScalingSpec,
    pub(crate) counts: PerRole<Counts>,
    /// What the pools need, and what they must keep when they shrink.
    pub(crate) grow: PerRole<Option<Need>>,
    pub(crate) shrink: PerRole<Option<Need>>,
    /// How long a replica takes to start.
    pub(crate) starts: PerRole<Duration>,
    /// Requests wait so long that no window is waited for.
    pub(crate) urgent: PerRole<bool>,
    pub(crate) now: Duration,
}

// === impl Situation ===

impl Situation<'_> {
    pub(super) fn is_stale(&self) -> bool {
        let stale = |role| self.counts[role].stale > 0;
        ROLES.into_iter().any(stale) || self.observations.router_queue.is_none()
    }

    /// What is asked for now, as far as bounds and budget allow it.
    pub(super) fn base(&self, bounds: PerRole<Bounds>) -> PerRole<u32> {
        let targets = self.observations.targets;
        let base = PerRole::of(|role| bounds[role].clamp(targets[role]));
        if self.spec.affords(base) {
            base
        } else {
            let asked = self.asked(base);
            let kept = PerRole::of(|role| Asked {
                flow: asked[role].flow.min(f64::from(base[role])),
                all: asked[role].all.min(f64::from(base[role])),
            });
            solve(kept, bounds, self.spec).replicas
        }
    }

    pub(super) fn why_base(&self, base: PerRole<u32>) -> Reason {
        let within = PerRole::of(|role| {
            let targets = self.observations.targets[role];
            self.spec.bounds[role].clamp(targets)
        });
        if base == self.observations.targets {
            Reason::Steady
        } else if base != within && self.spec.affords(within) {
            Reason::CapacityUnavailable
        } else {
            Reason::Bounds
        }
    }

    /// A pool of which too little is known needs what it has. While replicas start, what waits asks
    /// for no more of them: they were asked for when it began to.
    pub(super) fn asked(&self, base: PerRole<u32>) -> PerRole<Asked> {
        PerRole::of(|role| {
            let has = f64::from(base[role]);
            let Some(Need { replicas, flow, .. }) = self.grow[role] else {
                return Asked::just(has);
            };
            let Counts {
                unschedulable,
                starting,
                ..
            } = self.counts[role];
            let all = if unschedulable + starting > 0 {
                flow.max(replicas.min(has))
            } else {
                replicas
            };
            Asked { flow, all }
        })
    }

    /// What forbids that the pool loses a replica now.
    pub(super) fn hold(&self, role: PoolRole) -> Option<Limit> {
        let Counts {
            unschedulable,
            starting,
            leaving,
            ..
        } = self.counts[role];
        let live = self.counts[role].live();
        let moving = unschedulable + starting + leaving > 0;
        if self.is_stale() {
            Some(Limit::StaleMetrics)
        } else if ROLES.into_iter().any(|role| self.shrink[role].is_none()) {
            Some(Limit::NoEstimate)
        } else if self.observations.rollout_unready {
            Some(Limit::Rollout)
        } else if moving || live != self.observations.targets[role] {
            Some(Limit::OneAtATime)
        } else {
            None
        }
    }
}
