//! How many of each: pools as their `PDPool`s say, and the disruption budgets that follow. Decided here, without I/O.

use super::snapshot::Snapshot;
use super::status;
use crate::controller::build::budget::{Evictable, Mover, build_budgets};
use crate::controller::build::component::Component;
use crate::controller::build::pool::Pool;
use crate::controller::plan::Desired;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use pd_crds::drain::OnCordon;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::scaling::ScalingMode;
use pd_crds::{PdPool, PoolRole};

/// What is written of a pool's object.
pub(crate) enum PoolWrite {
    Create(Box<PdPool>),
    Scale {
        name: String,
        replicas: u32,
        /// Says that another client's size is undone.
        event: Option<Box<Event>>,
    },
}

/// What is wanted of each pool, as its `PDPool` says once it exists, and what has to be written for that.
pub(crate) fn decide_sizes(snapshot: &Snapshot<'_>) -> (Vec<Desired>, Vec<PoolWrite>) {
    let resources = &snapshot.effective.resources;
    let sizes = [&resources.prefill, &resources.decode].map(|pool| {
        let (replicas, write) = decide_size(snapshot, pool);
        (pool.desired(snapshot.spec(), replicas), write)
    });
    let (desired, writes): (Vec<_>, Vec<_>) = sizes.into_iter().unzip();
    (desired, writes.into_iter().flatten().collect())
}

fn decide_size(snapshot: &Snapshot<'_>, pool: &Pool) -> (u32, Option<PoolWrite>) {
    let mut object = pool.object(snapshot.deployment());
    let follows_spec = snapshot.spec().autoscaling.mode == ScalingMode::Off;
    let Some(stored) = &snapshot.pools[pool.role] else {
        if !follows_spec && let Some(size) = size_before(snapshot, pool.role) {
            object.spec.replicas = size;
        }
        let replicas = u32::try_from(object.spec.replicas).unwrap_or(0);
        return (replicas, Some(PoolWrite::Create(Box::new(object))));
    };
    let replicas = u32::try_from(stored.spec.replicas).unwrap_or(0);
    if !follows_spec || replicas == pool.replicas {
        return (replicas, None);
    }
    let name = object.name_any();
    // Else the spec has changed, and that is what it asks for.
    let event = had_wanted(snapshot, pool).then(|| scale_undone(pool, &name, replicas));
    let write = PoolWrite::Scale {
        name,
        replicas: pool.replicas,
        event: event.map(Box::new),
    };
    (pool.replicas, Some(write))
}

/// The size of a pool whose object was deleted, for the first size could end most of its workers: what the status says,
/// or where that says none, as of a deployment that was suspended, as many as there are. Nothing where there are none.
fn size_before(snapshot: &Snapshot<'_>, role: PoolRole) -> Option<i32> {
    let reported = reported_size(snapshot, role).filter(|size| *size > 0);
    reported.or_else(|| workers_that_stay(snapshot, role))
}

fn workers_that_stay(snapshot: &Snapshot<'_>, role: PoolRole) -> Option<i32> {
    let workers = snapshot.pods.iter().filter(|facts| {
        facts.component.pool_role() == Some(role) && !facts.leaves() && !facts.has_ended()
    });
    let workers = i32::try_from(workers.count()).unwrap_or(i32::MAX);
    Some(workers).filter(|workers| *workers > 0)
}

/// Whether a pool's size was the wanted one already when the status was last written. While writes failed it may have
/// been wanted only.
fn had_wanted(snapshot: &Snapshot<'_>, pool: &Pool) -> bool {
    let status = snapshot.deployment().status.as_ref();
    let status = status.filter(|status| !status::says_write_failed(status));
    let wanted = status.and_then(|_| reported_size(snapshot, pool.role));
    wanted.and_then(|wanted| u32::try_from(wanted).ok()) == Some(pool.replicas)
}

/// The size that was wanted when the status was last written.
fn reported_size(snapshot: &Snapshot<'_>, role: PoolRole) -> Option<i32> {
    let status = snapshot.deployment().status.as_ref()?;
    Some(match role {
        PoolRole::Decode => status.pools.decode.desired,
        PoolRole::Prefill => status.pools.prefill.desired,
    })
}

/// The disruption budgets of pools and routers.
pub(crate) fn decide_budgets(
    snapshot: &Snapshot<'_>,
    desired: &[Desired],
) -> Vec<PodDisruptionBudget> {
    let moves = snapshot.watches_nodes && snapshot.spec().drain.on_cordon == OnCordon::Move;
    let pools = desired.iter().map(|pool| Evictable {
        replicas: pool.replicas,
        nodes: pool.nodes,
    });
    let pools: Vec<Evictable> = pools.collect();
    let mut workers = snapshot.pods.iter().filter(|facts| facts.is_worker());
    // In a rollout there are more than wanted, and still only one of them may go.
    let exist = workers.clone().map(|facts| facts.members().count());
    let exist = u32::try_from(exist.sum::<usize>()).unwrap_or(u32::MAX);
    let wanted: u32 = pools.iter().map(|pool| pool.replicas * pool.nodes).sum();
    let empties_node = workers.any(|facts| facts.disposition == NodeDisposition::Evacuate);
    let mover = if moves {
        Mover::of(&pools, empties_node)
    } else {
        Mover::Eviction
    };
    let routers = snapshot.routers_wanted();
    build_budgets(snapshot.deployment(), wanted.max(exist), routers, mover)
}

/// Says why a pool that another client scaled has its old size again.
fn scale_undone(pool: &Pool, name: &str, asked: u32) -> Event {
    let (role, replicas) = (Component::from(pool.role).as_str(), pool.replicas);
    Event {
        type_: EventType::Warning,
        reason: "ScaleUndone".to_owned(),
        note: Some(format!(
            "PDPool {name} was set to {asked} and is {replicas} again: with spec.autoscaling.mode \
             Off the size is spec.pools.{role}.replicas; change that, or set the mode to External"
        )),
        action: "Scale".to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests;
