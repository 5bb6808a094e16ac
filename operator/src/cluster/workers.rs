//! Writes to workers' pods: what is to be written, decided without I/O, and the writes.

use super::admin::Admin;
use super::apply::{Writer, merge_params, now};
use super::error::{ApplyError, failed};
use super::facts::PodFacts;
use super::held_back::HeldBackBy;
use super::metrics::DrainOutcome;
use crate::controller::build::Resources;
use crate::controller::build::group::follower_name;
use crate::controller::build::pool::Pool;
use crate::controller::build::slot::Slot;
use crate::controller::plan::{Action, Leaving, Observed};
use k8s_openapi::api::core::v1;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use kube::runtime::events::{Event, EventType};
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::Pod;
use pd_protocol::labels::{self, ROUTABLE_GATE};
use pd_protocol::ports::WorkerPorts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One write to a worker's pods. Each is safe to repeat.
#[derive(Debug)]
pub(crate) enum WorkerWrite<'a> {
    /// Latch the readiness gate: every ready router sends to it, and its KV probe passed.
    Admit(&'a PodFacts),
    /// Add labels that selectors need.
    Label(&'a PodFacts, BTreeMap<&'static str, &'static str>),
    /// Make the pods of a leader's other nodes, which meet it.
    CreateFollowers {
        leader: &'a PodFacts,
        pool: &'a Pool,
        meet_at: SocketAddr,
    },
    Create {
        pool: &'a Pool,
        slot: Slot,
    },
    /// Mark it as leaving, for routers to see; nothing leads back.
    Leave(&'a PodFacts, HeldBackBy),
    /// Ask it to finish what it has and take nothing new.
    Drain(&'a PodFacts),
    Delete(&'a PodFacts, Leaving),
}

/// What workers need at any size of their pools: gates, labels and followers. One that leaves gets labels, too.
pub(crate) fn upkeep<'a>(
    pods: &'a [PodFacts],
    observed: &Observed,
    resources: &'a Resources,
) -> Vec<WorkerWrite<'a>> {
    let admitted = to_admit(pods, observed).map(WorkerWrite::Admit);
    let rest = pods.iter().flat_map(|facts| {
        let lacking = facts.lacking_labels();
        let is_due = !lacking.is_empty() && facts.pod.metadata.deletion_timestamp.is_none();
        let label = is_due.then_some(WorkerWrite::Label(facts, lacking));
        label.into_iter().chain(followers(facts, resources))
    });
    admitted.chain(rest).collect()
}

/// Workers whose gate is to latch: every ready router sends to them, and their KV probe passed.
fn to_admit<'a>(pods: &'a [PodFacts], observed: &Observed) -> impl Iterator<Item = &'a PodFacts> {
    pods.iter().filter(|facts| {
        let name = facts.pod.name_any();
        let mut observed = observed.pods.iter();
        !facts.routable() && !facts.leaves() && observed.any(|pod| pod.name == name && pod.admitted)
    })
}

/// The followers that a replica lacks, as soon as its leader has an address.
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
        meet_at: facts.meets_at()?,
    })
}

/// What the steps of the plan write; without resources nothing is created.
pub(crate) fn steps<'a>(
    actions: &[Action],
    pods: &'a [PodFacts],
    observed: &Observed,
    resources: Option<&'a Resources>,
) -> Vec<WorkerWrite<'a>> {
    let find = |name: &str| pods.iter().find(|facts| facts.pod.name_any() == name);
    let writes = actions.iter().filter_map(|action| match action {
        Action::Create { component, ordinal } => {
            // A Deployment makes the routers.
            let role = component.pool_role()?;
            Some(WorkerWrite::Create {
                pool: resources?.pool(role),
                slot: Slot::first(*ordinal),
            })
        }
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
        WorkerWrite::Admit(facts) => admit(writer, facts).await,
        WorkerWrite::Label(facts, labels) => label(writer, &facts.pod, labels).await,
        WorkerWrite::CreateFollowers {
            leader,
            pool,
            meet_at,
        } => {
            create_followers(writer, leader, pool, *meet_at).await?;
            Ok(true)
        }
        WorkerWrite::Create { pool, slot } => {
            let ports = ports_for(writer, pool, &pool.pod_name(*slot));
            create_worker(writer, &pool.pod(*slot, ports)).await?;
            Ok(true)
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
            Self::Create { .. } | Self::Leave(..) => true,
            Self::Admit(_) | Self::Label(..) | Self::CreateFollowers { .. } => false,
            Self::Drain(_) | Self::Delete(..) => false,
        }
    }

    /// What is done to which pod, for the log.
    pub(crate) fn named(&self) -> (&'static str, String) {
        match self {
            Self::Admit(facts) => ("admit", facts.pod.name_any()),
            Self::Label(facts, _) => ("label", facts.pod.name_any()),
            Self::CreateFollowers { leader, .. } => ("create followers of", leader.pod.name_any()),
            Self::Create { pool, slot } => ("create", pool.pod_name(*slot)),
            Self::Leave(facts, _) => ("leave", facts.pod.name_any()),
            Self::Drain(facts) => ("drain", facts.pod.name_any()),
            Self::Delete(facts, _) => ("delete", facts.pod.name_any()),
        }
    }
}

async fn admit(writer: &Writer<'_>, facts: &PodFacts) -> Result<bool, ApplyError> {
    let worker = &facts.pod;
    let mut metadata = as_seen(worker);
    if facts.nodes() > 1 {
        metadata["annotations"] = json!({labels::MEMBERS: facts.members_digest()});
    }
    let patch = json!({
        "metadata": metadata,
        "status": {"conditions": [{
            "type": ROUTABLE_GATE,
            "status": "True",
            "reason": "RoutersAcknowledged",
            "message": "every router sends requests to this worker",
            "lastTransitionTime": now(),
        }]},
    });
    let name = worker.name_any();
    let patched = writer
        .api::<Pod>()
        .patch_status(&name, &merge_params(), &Patch::Strategic(patch))
        .await;
    took_effect(patched).map_err(|source| failed::<Pod>("admit", &name, source))
}

async fn label(
    writer: &Writer<'_>,
    worker: &Pod,
    labels: &BTreeMap<&'static str, &'static str>,
) -> Result<bool, ApplyError> {
    let mut metadata = as_seen(worker);
    metadata["labels"] = json!(labels);
    patch_metadata(writer, worker, metadata, "label").await
}

async fn leave(writer: &Writer<'_>, worker: &Pod) -> Result<bool, ApplyError> {
    let mut metadata = as_seen(worker);
    metadata["annotations"] = json!({labels::LEAVING_SINCE: now()});
    metadata["labels"] = json!({labels::LEAVING: "true"});
    patch_metadata(writer, worker, metadata, "mark").await
}

async fn patch_metadata(
    writer: &Writer<'_>,
    worker: &Pod,
    metadata: Value,
    verb: &'static str,
) -> Result<bool, ApplyError> {
    let name = worker.name_any();
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let api = writer.api::<Pod>();
    let patched = api.patch(&name, &merge_params(), &patch).await;
    took_effect(patched).map_err(|source| failed::<Pod>(verb, &name, source))
}

async fn create_followers(
    writer: &Writer<'_>,
    leader: &PodFacts,
    pool: &Pool,
    meet_at: SocketAddr,
) -> Result<(), ApplyError> {
    for rank in leader.missing() {
        let name = follower_name(&leader.pod.name_any(), rank);
        let known = &writer.context.index.pods;
        if known.find(&writer.key(), &name).is_some() {
            // Of a leader of the same name before; the watch reports its end.
            continue;
        }
        let ports = ports_for(writer, pool, &name);
        let follower = pool.follower(&leader.pod.metadata, rank, meet_at, ports);
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

/// Says that a worker is replaced because of its node.
fn worker_replaced(facts: &PodFacts) -> Option<Event> {
    let why = match facts.disposition {
        NodeDisposition::Keep => return None,
        NodeDisposition::Evacuate => "its node is being emptied, and its successor serves",
        NodeDisposition::Lost => "its node, or a pod of its replica, is lost",
    };
    let name = facts.pod.name_any();
    Some(Event {
        type_: EventType::Normal,
        reason: "WorkerReplaced".to_owned(),
        note: Some(format!("{name} leaves: {why}")),
        action: "Replace".to_owned(),
        secondary: None,
    })
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

/// Metadata of a patch that is for a pod as it was seen, and for no other: where the watch is late, a
/// second patch would only move a time, and cause another event.
fn as_seen(pod: &Pod) -> Value {
    json!({"uid": pod.uid(), "resourceVersion": pod.resource_version()})
}

/// Whether a pod was patched. One that has changed or gone since is no failure: the watch reports it, and the next
/// reconcile decides by that.
fn took_effect<T>(patched: kube::Result<T>) -> kube::Result<bool> {
    match patched {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
        patched => patched.map(|_| true),
    }
}

#[cfg(test)]
mod tests;
