//! What is known at one time: the replicas of both pools, and what waits in front of them.

use super::per_role::PerRole;
use super::sample::{Gauges, Sample};
use pd_crds::PoolRole;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observations {
    /// Replicas that each pool is asked to have.
    pub(crate) targets: PerRole<u32>,
    pub(crate) replicas: Vec<Replica>,
    /// Requests that wait in routers for a place; nothing if a router did not answer.
    pub(crate) router_queue: Option<f64>,
    /// A step of a rollout waits for its pods.
    pub(crate) rollout_unready: bool,
    /// When nodes last came, came back or grew, on the clock of `now`.
    pub(crate) room_came: Option<Duration>,
}

/// What agents and routers reported when they were last asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) replicas: Vec<Replica>,
    /// As in [`Observations`].
    pub(crate) router_queue: Option<f64>,
    pub(crate) room_came: Option<Duration>,
    /// When that was, on the clock that samples are dated by.
    pub(crate) at: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replica {
    /// The pod's UID: another pod of the same name is another replica.
    pub(crate) uid: String,
    pub(crate) role: PoolRole,
    pub(crate) revision: String,
    pub(crate) state: ReplicaState,
    /// The newest that was believed.
    pub(crate) sample: Option<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaState {
    /// It finds no place: no node has what it asks for, or its process does not come up.
    Unschedulable,
    Starting,
    Serving,
    Leaving,
}

/// Replicas of one pool by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) unschedulable: u32,
    pub(crate) starting: u32,
    pub(crate) serving: u32,
    pub(crate) leaving: u32,
    /// Of those that serve, how many have reported nothing recently.
    pub(crate) stale: u32,
}

/// A sample older than this says nothing: fifteen of the local runtime's scrapes.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(15);

// === impl Observations ===

impl Observations {
    pub(crate) fn counts(&self, role: PoolRole, now: Duration) -> Counts {
        let mut counts = Counts::default();
        for replica in self.replicas.iter().filter(|replica| replica.role == role) {
            match replica.state {
                ReplicaState::Unschedulable => counts.unschedulable += 1,
                ReplicaState::Starting => counts.starting += 1,
                ReplicaState::Serving => {
                    counts.serving += 1;
                    counts.stale += u32::from(replica.fresh(now).is_none());
                }
                ReplicaState::Leaving => counts.leaving += 1,
            }
        }
        counts
    }

    /// Of the replicas that serve, those that are degraded. Where that is all of a pool
    /// it is none: what all have in common is what the pool can do.
    pub(crate) fn degraded(&self, role: PoolRole, now: Duration) -> Vec<&Replica> {
        let serves = |replica: &&Replica| replica.state == ReplicaState::Serving;
        let of_pool = self.replicas.iter().filter(|replica| replica.role == role);
        let (degraded, healthy): (Vec<_>, Vec<_>) = of_pool
            .filter(serves)
            .partition(|replica| replica.fresh(now).is_some_and(|sample| sample.degraded));
        if healthy.is_empty() {
            return Vec::new();
        }
        degraded
    }

    /// Gauges of the replicas of a pool that serve and have reported recently.
    pub(crate) fn gauges(&self, role: PoolRole, now: Duration) -> impl Iterator<Item = &Gauges> {
        self.replicas
            .iter()
            .filter(move |replica| replica.role == role)
            .filter(|replica| replica.state == ReplicaState::Serving)
            .filter_map(move |replica| Some(&replica.fresh(now)?.gauges))
    }
}

// === impl Replica ===

impl Replica {
    pub(crate) fn fresh(&self, now: Duration) -> Option<&Sample> {
        let sample = self.sample.as_ref()?;
        (now.saturating_sub(sample.at) <= STALE_AFTER).then_some(sample)
    }
}

// === impl Counts ===

impl Counts {
    /// Replicas that are here to stay.
    pub(crate) fn live(&self) -> u32 {
        self.unschedulable + self.schedulable()
    }

    pub(crate) fn schedulable(&self) -> u32 {
        self.starting + self.serving
    }
}
