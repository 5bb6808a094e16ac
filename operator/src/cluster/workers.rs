//! Writes to workers' pods: the steps of the plan, the marks that it needs, the pods of further nodes.

use super::apply::{Writer, merge_params, now};
use super::error::{ApplyError, failed};
use super::facts::PodFacts;
use super::metrics::DrainOutcome;
use crate::controller::build::Resources;
use crate::controller::build::component::Component;
use crate::controller::build::group::follower_name;
use crate::controller::build::pool::Pool;
use crate::controller::build::slot::Slot;
use crate::controller::plan::{Action, Leaving, Observed};
use k8s_openapi::api::core::v1;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::runtime::events::{Event, EventType};
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::Pod;
use pd_protocol::labels::{self, ROUTABLE_GATE};
use pd_protocol::ports::WorkerPorts;
use serde_json::{Value, json};

// === impl Writer ===

impl Writer<'_> {
    /// Latches a worker's readiness gate: every router sends requests to it.
    pub(crate) async fn admit(&self, facts: &PodFacts) -> Result<(), ApplyError> {
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
        let patched = self
            .api::<Pod>()
            .patch_status(&name, &merge_params(), &Patch::Strategic(patch))
            .await;
        unless_changed(patched).map_err(|source| failed::<Pod>("admit", &name, source))
    }

    /// Carries out one step of the plan; without resources nothing is created.
    pub(crate) async fn step(
        &self,
        action: &Action,
        facts: &[PodFacts],
        observed: &Observed,
        resources: Option<&Resources>,
    ) -> Result<(), ApplyError> {
        let find = |name: &str| facts.iter().find(|facts| facts.pod.name_any() == name);
        match action {
            Action::Create { component, ordinal } => match resources {
                Some(resources) => {
                    self.create_pod(*component, *ordinal, facts, resources)
                        .await
                }
                None => Ok(()),
            },
            Action::Leave { pod } => match find(pod) {
                Some(facts) => {
                    self.leave(&facts.pod).await?;
                    if let Some(event) = moved(facts) {
                        self.publish(&event).await;
                    }
                    Ok(())
                }
                None => Ok(()),
            },
            Action::Drain { pod } => {
                let url = find(pod).and_then(|facts| facts.admin_url("/drain"));
                if let Some(url) = url
                    && let Err(error) = self.context.admin(self.deployment).drain(&url).await
                {
                    // The next look finds it undrained and asks again, until its deadline.
                    tracing::warn!(pod, %error, "cannot ask a worker to drain");
                }
                Ok(())
            }
            Action::Terminate { pod } => match find(pod) {
                Some(facts) => {
                    let mut pods = observed.pods.iter();
                    let leaving = pods.find(|is| is.name == *pod).and_then(|is| is.leaving);
                    self.delete(facts, leaving.unwrap_or_default()).await
                }
                None => Ok(()),
            },
            // Routers watch the pods and find out by themselves.
            Action::Register { .. } | Action::Cordon { .. } | Action::Deregister { .. } => Ok(()),
        }
    }

    async fn create_pod(
        &self,
        component: Component,
        ordinal: u32,
        facts: &[PodFacts],
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        // A Deployment makes the routers.
        let Some(role) = component.pool_role() else {
            return Ok(());
        };
        let pool = resources.pool(role);
        let slots = facts
            .iter()
            .filter(|facts| facts.component == component)
            .filter_map(|facts| facts.slot);
        let last = slots
            .filter(|slot| slot.ordinal == ordinal)
            .map(|slot| slot.incarnation)
            .max();
        let slot = Slot {
            ordinal,
            incarnation: last.unwrap_or(0) + 1,
        };
        let ports = self.ports_for(pool, &pool.pod_name(slot));
        self.create_worker(&pool.pod(slot, ports)).await
    }

    async fn create_worker(&self, pod: &v1::Pod) -> Result<(), ApplyError> {
        self.create(pod, &self.context.pods, |pod| pod).await
    }

    fn ports_for(&self, pool: &Pool, pod: &str) -> WorkerPorts {
        let context = self.context;
        if pool.shares_host_network() {
            context.host_ports.give(self.namespace, pod, &context.pods)
        } else {
            WorkerPorts::WELL_KNOWN
        }
    }

    /// Makes the pods of a replica's further nodes, as soon as its first has an address.
    pub(crate) async fn complete(
        &self,
        facts: &PodFacts,
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        let Some(role) = facts.component.pool_role() else {
            return Ok(());
        };
        let pool = resources.pool(role);
        let is_lost = facts.disposition == NodeDisposition::Lost;
        let comes_up = !facts.routable() && !facts.leaves() && !is_lost;
        // One of an old revision that never served leaves.
        if !comes_up || facts.revision() != pool.revision {
            return Ok(());
        }
        let Some(meet_at) = facts.meets_at() else {
            return Ok(());
        };
        for rank in facts.missing() {
            let name = follower_name(&facts.pod.name_any(), rank);
            if self.context.pods.find(&self.key(), &name).is_some() {
                // Of a leader of the same name before; the watch reports its end.
                continue;
            }
            let ports = self.ports_for(pool, &name);
            let follower = pool.follower(&facts.pod.metadata, rank, meet_at, ports);
            self.create_worker(&follower).await?;
        }
        Ok(())
    }

    /// Marks a worker as leaving, for routers to see; nothing leads back.
    async fn leave(&self, worker: &Pod) -> Result<(), ApplyError> {
        let mut metadata = as_seen(worker);
        metadata["annotations"] = json!({labels::LEAVING_SINCE: now()});
        metadata["labels"] = json!({labels::LEAVING: "true"});
        let patch = json!({"metadata": metadata});
        let name = worker.name_any();
        let patched = self
            .api::<Pod>()
            .patch(&name, &merge_params(), &Patch::Merge(patch))
            .await;
        unless_changed(patched).map_err(|source| failed::<Pod>("mark", &name, source))
    }

    /// Gives a worker's pod the labels that selectors need.
    pub(crate) async fn relabel(&self, facts: &PodFacts) -> Result<(), ApplyError> {
        let lacking = facts.lacking_labels();
        if lacking.is_empty() || facts.pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut metadata = as_seen(&facts.pod);
        metadata["labels"] = json!(lacking);
        let name = facts.pod.name_any();
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let api = self.api::<Pod>();
        let patched = api.patch(&name, &merge_params(), &patch).await;
        unless_changed(patched).map_err(|source| failed::<Pod>("label", &name, source))
    }

    /// Deletes a worker. The pods of its further nodes belong to its own and go after it has ended:
    /// until then it may still serve, and needs them. Those of one that is lost go at once.
    async fn delete(&self, facts: &PodFacts, leaving: Leaving) -> Result<(), ApplyError> {
        let is_deleted = self.delete_pod(&facts.pod).await?;
        if facts.disposition == NodeDisposition::Lost {
            for follower in facts.members().skip(1) {
                self.delete_pod(follower).await?;
            }
        }
        if let Some(took) = facts.leaving_for(Timestamp::now())
            && is_deleted
        {
            let outcome = outcome_of(facts.disposition, leaving);
            self.context.metrics.drained(outcome, took);
        }
        Ok(())
    }

    /// Says whether it was there to be deleted.
    async fn delete_pod(&self, pod: &Pod) -> Result<bool, ApplyError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let name = pod.name_any();
        match self.api::<Pod>().delete(&name, &params).await {
            Ok(_) => Ok(true),
            // Gone, or already another one.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(false)
            }
            Err(source) => Err(failed::<Pod>("delete", &name, source)),
        }
    }
}

/// Says that a worker is replaced because of its node.
fn moved(facts: &PodFacts) -> Option<Event> {
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

/// A pod that has changed since is looked at again once the watch reports it.
fn unless_changed<T>(patched: kube::Result<T>) -> kube::Result<()> {
    match patched {
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
        patched => patched.map(drop),
    }
}

#[cfg(test)]
mod tests;
