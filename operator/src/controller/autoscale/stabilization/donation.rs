//! `Donations`: at the budget, one pool grows by what the other gives up; the donor first, and not
//! to and fro.

use super::{Move, STARTS_PER_WINDOW, Situation};
use crate::controller::autoscale::decision::{Limit, Reason};
use crate::controller::autoscale::per_role::{PerRole, ROLES, other};
use crate::controller::autoscale::solution::Shares;
use pd_crds::PoolRole;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Donations {
    last: Option<Donation>,
}

/// GPUs that a pool gave up for the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Donation {
    donor: PoolRole,
    at: Duration,
}

/// What is there, what would be better, and by which needs.
pub(super) struct Gain {
    pub(super) base: PerRole<u32>,
    pub(super) wanted: PerRole<u32>,
    pub(super) needs: PerRole<f64>,
}

/// GPUs change pools only if the worse served pool is served better by this.
const GAIN_MIN: f64 = 1.1;
/// GPUs that changed pools do not go back before this, nor before replicas could have started twice.
const HOLD: Duration = Duration::from_secs(60);

// === impl Donations ===

impl Donations {
    /// A pool grows by what pods do not hold, those on their way out included. If that is too
    /// little and the other pool can spare one, it gives one up; its GPUs are taken once it is
    /// gone.
    pub(super) fn keep_budget(&mut self, gain: &Gain, situation: &Situation, step: &mut Move) {
        for role in ROLES {
            let has = gain.base[role];
            if step.to[role] <= has {
                continue;
            }
            let room = room(role, step.to, situation).max(has);
            if room >= step.to[role] {
                continue;
            }
            step.to[role] = room;
            let donor = other(role);
            let gives = situation.counts[donor].leaving > 0
                || situation.counts[donor].live() > step.to[donor]
                || self.donate(donor, gain, situation, step);
            step.limit_if(true, if gives { Limit::Donor } else { Limit::Budget });
        }
    }

    fn donate(
        &mut self,
        donor: PoolRole,
        gain: &Gain,
        situation: &Situation,
        step: &mut Move,
    ) -> bool {
        let received = self.last.is_some_and(|last| last.donor != donor);
        if !gain.is_worth(donor) || (received && self.holds(situation)) {
            return false;
        }
        if let Some(limit) = situation.hold(donor) {
            step.limit_if(true, limit);
            return false;
        }
        self.last = Some(Donation {
            donor,
            at: situation.now,
        });
        step.to[donor] = gain.base[donor] - 1;
        step.reason = Reason::Rebalance;
        true
    }

    /// Whether a pool gave GPUs up so lately that it takes none.
    pub(super) fn binds(&self, donor: PoolRole, situation: &Situation) -> bool {
        self.last.is_some_and(|last| last.donor == donor) && self.holds(situation)
    }

    fn holds(&self, situation: &Situation) -> bool {
        let starts = situation.starts.prefill.max(situation.starts.decode);
        let long = HOLD.max(starts * STARTS_PER_WINDOW);
        self.last
            .is_some_and(|last| situation.now.saturating_sub(last.at) < long)
    }
}

/// Replicas that a pool may have beside what exists, and is asked for, of the other.
fn room(role: PoolRole, to: PerRole<u32>, situation: &Situation) -> u32 {
    let Some(max_gpus) = situation.spec.max_gpus else {
        return u32::MAX;
    };
    let gpus = &situation.spec.gpus;
    let rest = other(role);
    let held = to[rest].max(situation.counts[rest].live()) + situation.counts[rest].leaving;
    let left = max_gpus.saturating_sub(held.saturating_mul(gpus[rest]));
    (left / gpus[role]).saturating_sub(situation.counts[role].leaving)
}

// === impl Gain ===

impl Gain {
    fn is_worth(&self, donor: PoolRole) -> bool {
        let (now, then) = (
            Shares::of(self.base, self.needs),
            Shares::of(self.wanted, self.needs),
        );
        self.wanted[donor] < self.base[donor] && then.worse >= now.worse * GAIN_MIN
    }
}
