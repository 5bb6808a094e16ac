//! `Capacity`: what nodes have had room for. A scale-up that finds none is given up after a while,
//! so that the GPUs it was meant to get are not waited for by anyone, and tried again later.

use super::Situation;
use crate::controller::autoscale::need::Need;
use crate::controller::autoscale::per_role::{PerRole, ROLES, other};
use crate::controller::autoscale::spec::{Bounds, ScalingSpec};
use pd_crds::PoolRole;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Capacity {
    unschedulable_since: PerRole<Option<Duration>>,
    frozen: PerRole<Option<Frozen>>,
    /// Since when a pool has needed less than it waits for.
    spare_since: PerRole<Option<Duration>>,
}

/// For more of a pool no node had room.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Frozen {
    /// Of both pools, those that had a place.
    placed: PerRole<u32>,
    since: Duration,
}

/// A scale-up that no node has had room for this long is given up.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(120);
/// And tried again after this, or when nodes come.
const RETRY_AFTER: Duration = Duration::from_secs(300);

// === impl Capacity ===

impl Capacity {
    /// The pool's bounds, narrowed to what nodes have room for.
    pub(super) fn bounds(&mut self, role: PoolRole, situation: &Situation) -> Bounds {
        let (now, counts) = (situation.now, situation.counts[role]);
        let since = &mut self.unschedulable_since[role];
        if counts.unschedulable == 0 {
            *since = None;
        } else if now.saturating_sub(*since.get_or_insert(now)) >= UNSCHEDULABLE_MAX {
            *since = None;
            self.frozen[role] = Some(Frozen {
                placed: PerRole::of(|role| situation.counts[role].schedulable()),
                since: now,
            });
        }
        let room_came = situation.observations.room_came;
        self.frozen[role] = self.frozen[role].filter(|frozen| {
            let fits = |need: Need| need.whole() <= frozen.placed[role];
            now.saturating_sub(frozen.since) < RETRY_AFTER
                && room_came.is_none_or(|at| at <= frozen.since)
                && !situation.grow[role].is_some_and(fits)
        });
        let Bounds { min, max } = situation.spec.bounds[role];
        let room = self.frozen[role].map_or(max, |frozen| {
            let placed = frozen.placed[role].max(frozen.left_for(role, situation));
            placed.clamp(min, max)
        });
        Bounds { min, max: room }
    }

    /// The spec with the GPUs that nodes turned out to have, where both pools can have them.
    pub(super) fn within(&self, spec: &ScalingSpec) -> ScalingSpec {
        let frozen = ROLES.into_iter().filter_map(|role| self.frozen[role]);
        let found = frozen.filter(|_| spec.shares_nodes).map(|frozen| {
            let gpus = spec.cost(frozen.placed);
            u32::try_from(gpus).unwrap_or(u32::MAX)
        });
        ScalingSpec {
            max_gpus: found.chain(spec.max_gpus).min(),
            ..spec.clone()
        }
    }

    pub(super) fn is_short(&self, role: PoolRole) -> bool {
        self.frozen[role].is_some()
    }

    /// Whether the pool waits for nodes and has needed less for long enough.
    pub(super) fn is_cancelled(
        &mut self,
        role: PoolRole,
        spare: bool,
        situation: &Situation,
    ) -> bool {
        if situation.counts[role].unschedulable == 0 || !spare {
            self.spare_since[role] = None;
            return false;
        }
        let since = *self.spare_since[role].get_or_insert(situation.now);
        situation.now.saturating_sub(since) >= situation.spec.up_window
    }
}

// === impl Frozen ===

impl Frozen {
    /// Replicas for which there is room if the other pool holds what it is asked to have.
    fn left_for(&self, role: PoolRole, situation: &Situation) -> u32 {
        let spec = situation.spec;
        if !spec.shares_nodes {
            return 0;
        }
        let rest = other(role);
        let held = u64::from(situation.observations.targets[rest]) * u64::from(spec.gpus[rest]);
        let left = spec.cost(self.placed).saturating_sub(held);
        u32::try_from(left / u64::from(spec.gpus[role])).unwrap_or(u32::MAX)
    }
}
