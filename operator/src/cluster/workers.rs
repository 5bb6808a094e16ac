//! Writes to workers' pods: what is to be written, decided without I/O, and the writes.

mod events;
mod patches;
mod pod_groups;

use super::admin::Admin;
use super::apply::Writer;
use super::error::ApplyError;
use super::facts::PodFacts;
use super::gangs::{Placing, placing};
use super::held_back::HeldBackBy;
use super::metrics::DrainOutcome;
use super::snapshot::Snapshot;
use crate::controller::build::Resources;
use crate::controller::build::gang::{Gang, GangScheduler};
use crate::controller::build::group::follower_name;
use crate::controller::build::pool::Pool;
use crate::controller::build::slot::Slot;
use crate::controller::plan::{Action, Desired, Leaving, Observed};
use events::{nodes_released, worker_replaced};
use k8s_openapi::api::core::v1;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use patches::{admit, label, leave};
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::Pod;
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;
use pod_groups::{create_pod_group, pod_groups};
use std::collections::BTreeMap;

/// One write to a worker's pods. Each is safe to repeat.
#[derive(Debug)]
pub(crate) enum WorkerWrite<'a> {
    /// Latch the readiness gate: every ready router sends to it, and its KV probe passed.
    Admit {
        facts: &'a PodFacts,
        gang_is_whole: bool,
    },
    /// Add labels that selectors need.
    Label(&'a PodFacts, BTreeMap<&'static str, &'static str>),
    /// Make the pods of a leader's other nodes, which meet it.
    CreateFollowers {
        leader: &'a PodFacts,
        pool: &'a Pool,
    },
    /// Say to the scheduler of gangs how many pods one has.
    CreatePodGroup {
        gang: &'a Gang,
        scheduler: &'a GangScheduler,
        leaders: Vec<&'a PodFacts>,
    },
    Create {
        pool: &'a Pool,
        slot: Slot,
        gang: Option<Gang>,
    },
    /// Have a gang's replica give back its nodes, for a reason.
    Release(&'a PodFacts, String),
    /// Mark it as leaving, for routers to see; nothing leads back.
    Leave(&'a PodFacts, HeldBackBy),
    /// Ask it to finish what it has and take nothing new.
    Drain(&'a PodFacts),
    Delete(&'a PodFacts, Leaving),
}

/// What workers need at any size of their pools: gates, labels, followers and what schedulers read of gangs. One that
/// leaves gets labels, too.
pub(crate) fn upkeep<'a>(snapshot: &'a Snapshot<'_>, observed: &Observed) -> Vec<WorkerWrite<'a>> {
    let (pods, resources) = (&snapshot.pods, &snapshot.effective.resources);
    let admitted = to_admit(pods, observed).map(|facts| WorkerWrite::Admit {
        facts,
        gang_is_whole: snapshot.gangs.is_whole(facts),
    });
    let rest = pods.iter().flat_map(|facts| {
        let mut lacking = facts.lacking_labels();
        // One that was admitted before its gang was whole.
        let is_marked = facts.pod.labels().contains_key(labels::GANG_WHOLE);
        if facts.routable() && !is_marked && snapshot.gangs.is_whole(facts) {
            lacking.insert(labels::GANG_WHOLE, "true");
        }
        let is_due = !lacking.is_empty() && facts.pod.metadata.deletion_timestamp.is_none();
        let label = is_due.then_some(WorkerWrite::Label(facts, lacking));
        label.into_iter().chain(followers(facts, resources))
    });
    admitted.chain(rest).chain(pod_groups(snapshot)).collect()
}

/// Workers whose gate is to latch: every ready router sends to them, and their KV probe passed.
fn to_admit<'a>(pods: &'a [PodFacts], observed: &Observed) -> impl Iterator<Item = &'a PodFacts> {
    pods.iter().filter(|facts| {
        let name = facts.pod.name_any();
        let mut observed = observed.pods.iter();
        !facts.routable() && !facts.leaves() && observed.any(|pod| pod.name == name && pod.admitted)
    })
}

/// The followers that a replica lacks.
fn followers<'a>(facts: &'a PodFacts, resources: &'a Resources) -> Option<WorkerWrite<'a>> {
    let pool = resources.pool(facts.component.pool_role()?);
    let is_lost = facts.disposition == NodeDisposition::Lost;
    let comes_up = !facts.routable() && !facts.leaves() && !is_lost;
    // One of an old revision that never served leaves.
    if !comes_up || facts.revision() != pool.revision || facts.missing().next().is_none() {
        return None;
    }
    Some(WorkerWrite::CreateFollowers {
        leader: facts,
        pool,
    })
}

/// What the steps of the plan write.
pub(crate) fn steps<'a>(
    actions: &[Action],
    snapshot: &'a Snapshot<'_>,
    observed: &Observed,
    desired: &[Desired],
) -> Vec<WorkerWrite<'a>> {
    let resources = &snapshot.effective.resources;
    let mut begun = Vec::new();
    let creates = actions.iter().filter_map(|action| {
        let Action::Create { component, ordinal } = action else {
            return None;
        };
        // A Deployment makes the routers.
        let role = component.pool_role()?;
        let (pool, slot) = (resources.pool(role), Slot::first(*ordinal));
        let gang = match placing(snapshot, desired, (role, slot), &mut begun) {
            Placing::Later => return None,
            Placing::Alone => None,
            Placing::In(gang) => Some(gang),
        };
        Some(WorkerWrite::Create { pool, slot, gang })
    });
    let mut writes: Vec<_> = creates.collect();
    writes.extend(leaving_steps(
        actions,
        &snapshot.pods,
        observed,
        Some(resources),
    ));
    writes
}

/// What they write to workers that leave.
pub(crate) fn leaving_steps<'a>(
    actions: &[Action],
    pods: &'a [PodFacts],
    observed: &Observed,
    resources: Option<&'a Resources>,
) -> Vec<WorkerWrite<'a>> {
    let find = |name: &str| pods.iter().find(|facts| facts.pod.name_any() == name);
    let writes = actions.iter().filter_map(|action| match action {
        Action::Leave { pod } => {
            let facts = find(pod)?;
            Some(WorkerWrite::Leave(facts, HeldBackBy::of(facts, resources)))
        }
        Action::Drain { pod } => find(pod).map(WorkerWrite::Drain),
        Action::Terminate { pod } => {
            let mut observed = observed.pods.iter();
            let leaving = observed.find(|is| is.name == *pod)?.leaving;
            Some(WorkerWrite::Delete(find(pod)?, leaving.unwrap_or_default()))
        }
        // Routers watch the pods and find out by themselves: router/src/discovery/pods.rs.
        Action::Register { .. } | Action::Cordon { .. } | Action::Deregister { .. } => None,
        Action::Create { .. } => None,
    });
    writes.collect()
}

/// Carries out one write; says whether it took effect, which it does not on a pod that has changed or gone since.
pub(crate) async fn write_worker(
    writer: &Writer<'_>,
    admin: Option<&Admin>,
    write: &WorkerWrite<'_>,
) -> Result<bool, ApplyError> {
    let (verb, pod) = write.named();
    tracing::debug!(deployment = %writer.key(), verb, pod, "writing to a worker");
    match write {
        WorkerWrite::Admit {
            facts,
            gang_is_whole,
        } => admit(writer, facts, *gang_is_whole).await,
        WorkerWrite::Label(facts, labels) => label(writer, &facts.pod, labels).await,
        WorkerWrite::CreateFollowers { leader, pool } => {
            create_followers(writer, leader, pool).await?;
            Ok(true)
        }
        WorkerWrite::CreatePodGroup {
            gang,
            scheduler,
            leaders,
        } => create_pod_group(writer, gang, scheduler, leaders).await,
        WorkerWrite::Create { pool, slot, gang } => {
            let ports = ports_for(writer, pool, &pool.pod_name(*slot));
            create_worker(writer, &pool.pod_of(*slot, ports, gang.as_ref())).await?;
            Ok(true)
        }
        WorkerWrite::Release(facts, why) => {
            let leaves = leave(writer, &facts.pod).await?;
            if leaves {
                writer.publish(&nodes_released(facts, why)).await;
            }
            Ok(leaves)
        }
        WorkerWrite::Leave(facts, _) => {
            let leaves = leave(writer, &facts.pod).await?;
            if let Some(event) = worker_replaced(facts).filter(|_| leaves) {
                writer.publish(&event).await;
            }
            Ok(leaves)
        }
        WorkerWrite::Drain(facts) => {
            drain(admin, facts).await;
            Ok(true)
        }
        WorkerWrite::Delete(facts, leaving) => delete(writer, facts, *leaving).await,
    }
}

// === impl WorkerWrite ===

impl WorkerWrite<'_> {
    /// Whether it is a step towards the size of a pool.
    pub(crate) fn follows_size(&self) -> bool {
        match self {
            Self::Create { .. } | Self::Leave(..) | Self::Release(..) => true,
            Self::Admit { .. } | Self::Label(..) | Self::CreateFollowers { .. } => false,
            Self::CreatePodGroup { .. } | Self::Drain(_) | Self::Delete(..) => false,
        }
    }

    /// What is done to which pod, for the log.
    pub(crate) fn named(&self) -> (&'static str, String) {
        match self {
            Self::Admit { facts, .. } => ("admit", facts.pod.name_any()),
            Self::Label(facts, _) => ("label", facts.pod.name_any()),
            Self::CreateFollowers { leader, .. } => ("create followers of", leader.pod.name_any()),
            Self::CreatePodGroup { gang, .. } => ("create pod group", gang.name.clone()),
            Self::Create { pool, slot, .. } => ("create", pool.pod_name(*slot)),
            Self::Release(facts, _) => ("release", facts.pod.name_any()),
            Self::Leave(facts, _) => ("leave", facts.pod.name_any()),
            Self::Drain(facts) => ("drain", facts.pod.name_any()),
            Self::Delete(facts, _) => ("delete", facts.pod.name_any()),
        }
    }
}

async fn create_followers(
    writer: &Writer<'_>,
    leader: &PodFacts,
    pool: &Pool,
) -> Result<(), ApplyError> {
    for rank in leader.missing() {
        let name = follower_name(&leader.pod.name_any(), rank);
        let known = &writer.context.index.pods;
        if known.find(&writer.key(), &name).is_some() {
            // Of a leader of the same name before; the watch reports its end.
            continue;
        }
        let ports = ports_for(writer, pool, &name);
        let follower = pool.follower(&leader.pod.metadata, rank, ports);
        create_worker(writer, &follower).await?;
    }
    Ok(())
}

async fn create_worker(writer: &Writer<'_>, pod: &v1::Pod) -> Result<(), ApplyError> {
    let known = &writer.context.index.pods;
    writer.create(pod, known, |pod| pod).await.map(drop)
}

fn ports_for(writer: &Writer<'_>, pool: &Pool, pod: &str) -> WorkerPorts {
    let index = &writer.context.index;
    if pool.shares_host_network() {
        index.host_ports.give(writer.namespace, pod, &index.pods)
    } else {
        WorkerPorts::WELL_KNOWN
    }
}

async fn drain(admin: Option<&Admin>, facts: &PodFacts) {
    if let Some((admin, url)) = admin.zip(facts.admin_url("/drain"))
        && let Err(error) = admin.drain(&url).await
    {
        // The next reconcile finds it undrained and asks again, until its deadline.
        let pod = facts.pod.name_any();
        tracing::warn!(pod, %error, "cannot ask a worker to drain");
    }
}

/// Deletes a worker. Its followers belong to it and go after it has ended: until then it may still serve, and needs
/// them. Those of one that is lost go at once.
async fn delete(
    writer: &Writer<'_>,
    facts: &PodFacts,
    leaving: Leaving,
) -> Result<bool, ApplyError> {
    let is_deleted = delete_pod(writer, &facts.pod).await?;
    if facts.disposition == NodeDisposition::Lost {
        for follower in facts.members().skip(1) {
            delete_pod(writer, follower).await?;
        }
    }
    if let Some(took) = facts.leaving_for(Timestamp::now())
        && is_deleted
    {
        let outcome = outcome_of(facts.disposition, leaving);
        writer.context.metrics.drained(outcome, took);
    }
    Ok(is_deleted)
}

/// Says whether it was there to be deleted.
async fn delete_pod(writer: &Writer<'_>, pod: &Pod) -> Result<bool, ApplyError> {
    writer.remove::<Pod>(&pod.name_any(), pod.uid()).await
}

fn outcome_of(disposition: NodeDisposition, leaving: Leaving) -> DrainOutcome {
    if disposition == NodeDisposition::Lost {
        DrainOutcome::Lost
    } else if leaving.past_deadline && !leaving.drained {
        if leaving.unanswered {
            DrainOutcome::Unanswered
        } else {
            DrainOutcome::Deadline
        }
    } else {
        DrainOutcome::Drained
    }
}

#[cfg(test)]
mod tests;
