//! How a pod that is to be made gets its node: alone, or with a gang.

use super::{is_established, of_role, size_of_pair, waits_until};
use crate::cluster::facts::PodFacts;
use crate::cluster::snapshot::Snapshot;
use crate::controller::autoscale::per_role::ROLES;
use crate::controller::build::component::Component;
use crate::controller::build::gang::{Gang, GangScheduler};
use crate::controller::build::slot::Slot;
use crate::controller::plan::Desired;
use kube::ResourceExt;
use pd_crds::PoolRole;
use pd_crds::pod::Pod;
use pd_crds::scheduling::GangScheduling;
use pd_crds::stuck::{Cause, stuck};
use pd_protocol::labels;
use std::sync::Arc;

/// How a pod that is to be made gets its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    Alone,
    In(Gang),
    /// It is not made yet.
    Later,
}

/// How the pod of a slot gets its node. `begun` are the pools whose replica of the first pair this reconcile makes.
pub(crate) fn placing(
    snapshot: &Snapshot<'_>,
    desired: &[Desired],
    (role, slot): (PoolRole, Slot),
    begun: &mut Vec<PoolRole>,
) -> Placing {
    if snapshot.spec().scheduling.gang == GangScheduling::None {
        return Placing::Alone;
    }
    let nodes = snapshot.effective.resources.pool(role).nodes;
    let comes_first = comes_first(snapshot, desired);
    let is_queued = queued_as(snapshot, role).is_some();
    // Kueue knows of groups alone what is to be kept, and so one that is alone is a group of one.
    let may_be_alone = nodes < 2 && !is_queued;
    if !comes_first && may_be_alone {
        return Placing::Alone;
    }
    if waits_until(snapshot, snapshot.gangs.released).is_some() {
        return Placing::Later;
    }
    let drawn = snapshot.now.as_millisecond();
    let deployment = snapshot.deployment().name_any();
    let has_begun = begun.contains(&role) || of_role(snapshot, role).next().is_some();
    if comes_first && !has_begun {
        begun.push(role);
        let first = snapshot.gangs.first(snapshot).map(|it| it.gang.clone());
        return Placing::In(first.unwrap_or_else(|| Gang {
            name: format!("{deployment}-{drawn:x}"),
            size: size_of_pair(snapshot),
        }));
    }
    if may_be_alone {
        return Placing::Alone;
    }
    let vacant = vacant_place(snapshot, role).filter(|_| !begun.contains(&role));
    if let Some(gang) = vacant {
        begun.push(role);
        return Placing::In(gang);
    }
    let (role, ordinal) = (Component::from(role).as_str(), slot.ordinal);
    Placing::In(Gang {
        name: format!("{deployment}-{role}{ordinal}-{drawn:x}"),
        size: nodes,
    })
}

/// For what shapes of pods Kueue gives quota, where it does.
fn queued_as<'a>(snapshot: &'a Snapshot<'_>, role: PoolRole) -> Option<&'a str> {
    match snapshot.effective.resources.pool(role).gangs.as_ref()? {
        GangScheduler::Kueue { shapes, .. } => Some(shapes),
        GangScheduler::Kubernetes(_) | GangScheduler::Coscheduling | GangScheduler::Volcano => None,
    }
}

/// The first pair that lacks its replica of a role, for which Kueue keeps the quota as long as the other one is there: only
/// a replica in its place gets it.
fn vacant_place(snapshot: &Snapshot<'_>, role: PoolRole) -> Option<Gang> {
    let shapes = queued_as(snapshot, role)?;
    let workers = || snapshot.pods.iter().filter(|facts| facts.is_worker());
    let is_taken = |gang: &Gang| {
        workers().any(|facts| {
            facts.component == Component::from(role)
                && Gang::of(&facts.pod.metadata).is_some_and(|of| of.name == gang.name)
        })
    };
    let keeps = workers().filter(|facts| {
        let asked = facts.pod.annotations().get(labels::GANG_SHAPES);
        is_established(snapshot, facts) && asked.is_some_and(|asked| asked == shapes)
    });
    let pairs = keeps.filter(|facts| !facts.leaves()).filter_map(|facts| {
        let gang = Gang::of(&facts.pod.metadata)?;
        (gang.size > facts.nodes()).then_some(gang)
    });
    pairs.into_iter().find(|gang| !is_taken(gang))
}

/// Replicas that wait for quota by themselves, and should not. One makes way for one in the place of a replica before it,
/// whose quota is kept. All do where nothing else is there, so that prefill and decode wait as a pair again: Kueue has
/// taken their pods one after the other.
pub(super) fn to_move_up<'a>(
    snapshot: &'a Snapshot<'_>,
) -> impl Iterator<Item = (&'a PodFacts, String)> {
    let all = || ROLES.into_iter().flat_map(|role| of_role(snapshot, role));
    let waits_with = |role: PoolRole| {
        queued_as(snapshot, role).is_some() && of_role(snapshot, role).next().is_some()
    };
    let is_pair_gone = ROLES.into_iter().all(waits_with)
        && all().all(is_queued)
        && snapshot.gangs.first(snapshot).is_none();
    let alone = all().filter(move |_| is_pair_gone).map(|facts| {
        let why = "it waits for quota without the other half of a first pair";
        (facts, why.to_owned())
    });
    let moved_up = ROLES.into_iter().filter_map(move |role| {
        let gang = vacant_place(snapshot, role)?;
        let queued = of_role(snapshot, role).find(|facts| is_queued(facts))?;
        let why = format!(
            "it waits for quota, and gang {} keeps some for a replica in the place of one that went",
            gang.name
        );
        Some((queued, why))
    });
    alone.chain(moved_up)
}

/// Whether a replica waits for quota as a whole.
fn is_queued(facts: &PodFacts) -> bool {
    let waits = |pod: &Arc<Pod>| stuck(pod).is_some_and(|it| it.cause == Cause::Queued);
    facts.members().all(waits)
}

/// Whether nothing of a deployment was ever whole, so that it begins with its first pair.
fn comes_first(snapshot: &Snapshot<'_>, desired: &[Desired]) -> bool {
    let wants = |role: PoolRole| {
        let mut desired = desired.iter();
        desired.any(|pool| pool.component == Component::from(role) && pool.replicas > 0)
    };
    let first = snapshot.gangs.first(snapshot);
    let is_of_first = |facts: &PodFacts| first.is_some() && snapshot.gangs.find(facts) == first;
    let mut roles = ROLES.into_iter();
    roles.all(|role| {
        let mut there = of_role(snapshot, role).peekable();
        let begins = there.peek().is_none() || of_role(snapshot, role).any(is_of_first);
        wants(role) && begins && !there.any(|facts| is_established(snapshot, facts))
    })
}
