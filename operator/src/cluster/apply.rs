//! All writes of a reconcile.
//!
//! * Pods are created, never applied: a name is a function of the slot, so creating one twice fails.
//! * Pools are created once; their size is written through `/scale` only.
//! * Router, Service, budgets and what a namespace shares are applied (server-side), and not again
//!   while what was applied and what is stored stay as they were.
//! * A write that harms carries the UID it was decided for.

use super::children::{Child, Children, Stored, is_shared, shared_key};
use super::context::Context;
use super::facts::PodFacts;
use super::metrics::DrainOutcome;
use super::shared::remembered_as;
use crate::controller::build::Resources;
use crate::controller::build::component::Component;
use crate::controller::build::group::follower_name;
use crate::controller::build::pool::{Pool, Slot};
use crate::controller::plan::{Action, Leaving, Observed};
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, Request};
use kube::runtime::events::{Event, EventType};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::Pod;
use pd_crds::{PdDeployment, PdPool};
use pd_protocol::labels::{self, ROUTABLE_GATE};
use pd_protocol::ports::WorkerPorts;
use serde::Serialize;
use serde_json::{Value, json};

/// Field manager of everything the operator applies.
pub(crate) const MANAGER: &str = "pd-operator";

/// Why a write failed; the next reconcile decides again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("{verb} {kind} {name}: {}", message_of(.source))]
    Write {
        verb: &'static str,
        kind: String,
        name: String,
        source: Box<kube::Error>,
    },
    #[error(
        "{kind} {name} exists and belongs to {owner}; rename this PDDeployment, or delete that {kind}"
    )]
    Foreign {
        kind: String,
        name: String,
        owner: String,
    },
    #[error(
        "{kind} {name} exists and is not pdserve's, which needs that name in each namespace with a \
         PDDeployment; delete that {kind}, or label it {}=true to hand it over",
        labels::SHARED
    )]
    NotShared { kind: String, name: String },
}

/// What an applied object belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Deployment,
    /// All deployments of the namespace share it.
    Namespace,
}

/// Writes for one deployment.
pub(crate) struct Writer<'a> {
    pub(crate) context: &'a Context,
    pub(crate) deployment: &'a PdDeployment,
    pub(crate) namespace: &'a str,
}

// === impl Writer ===

impl Writer<'_> {
    pub(crate) fn uid(&self) -> String {
        self.deployment.uid().unwrap_or_default()
    }

    pub(crate) fn api<K: Child>(&self) -> Api<K> {
        Api::namespaced(self.context.client.clone(), self.namespace)
    }

    /// Applies an object of the deployment, unless it is stored as this operator last left it.
    pub(crate) async fn apply<K: Child>(
        &self,
        wanted: &K,
        known: &Children<Stored<K>>,
    ) -> Result<(), ApplyError> {
        self.apply_for(Holder::Deployment, wanted, known).await
    }

    /// Applies an object, unless it is stored as this operator last left it.
    pub(crate) async fn apply_for<K: Child>(
        &self,
        holder: Holder,
        wanted: &K,
        known: &Children<Stored<K>>,
    ) -> Result<(), ApplyError> {
        let name = wanted.name_any();
        let key = self.key_of(holder);
        match known.find(&key, &name) {
            Some(stored) => {
                if holder == Holder::Deployment {
                    self.check_owner::<K>(&name, &stored.owners)?;
                }
                if self.is_current(holder, wanted, known) {
                    return Ok(());
                }
            }
            // One that does not carry our label is in no index, and must not be taken over.
            None => {
                let stored = self.api::<K>().get_metadata_opt(&name).await;
                let stored = stored.map_err(|source| failed::<K>("get", &name, source))?;
                if let Some(stored) = stored {
                    self.check_holder::<K>(holder, &name, &stored.metadata)?;
                }
            }
        }
        let params = PatchParams::apply(MANAGER).force();
        let patched = self
            .api::<K>()
            .patch_metadata(&name, &params, &Patch::Apply(typed(wanted)))
            .await
            .map_err(|source| failed::<K>("apply", &name, source))?;
        let applied = &self.context.applied;
        applied.remember(&self.applied_by(holder), wanted, patched.meta());
        known.put_metadata(&key, patched.meta());
        Ok(())
    }

    /// Whether an object is stored as this operator last left it, and that is what is wanted.
    pub(crate) fn is_current<K: Child>(
        &self,
        holder: Holder,
        wanted: &K,
        known: &Children<Stored<K>>,
    ) -> bool {
        let stored = known.find(&self.key_of(holder), &wanted.name_any());
        let (applied, by) = (&self.context.applied, self.applied_by(holder));
        stored.is_some_and(|stored| applied.is_current(&by, wanted, &stored))
    }

    fn key_of(&self, holder: Holder) -> ObjectRef<PdDeployment> {
        match holder {
            Holder::Deployment => self.key(),
            Holder::Namespace => shared_key(self.namespace),
        }
    }

    /// Under which name it is remembered what was applied.
    fn applied_by(&self, holder: Holder) -> String {
        match holder {
            Holder::Deployment => self.uid(),
            Holder::Namespace => remembered_as(self.namespace),
        }
    }

    fn check_holder<K: Child>(
        &self,
        holder: Holder,
        name: &str,
        stored: &ObjectMeta,
    ) -> Result<(), ApplyError> {
        let owners = stored.owner_references.as_deref().unwrap_or_default();
        match holder {
            Holder::Deployment => self.check_owner::<K>(name, owners),
            Holder::Namespace if stored.labels.as_ref().is_some_and(is_shared) => Ok(()),
            Holder::Namespace => Err(ApplyError::NotShared {
                kind: K::kind(&()).into_owned(),
                name: name.to_owned(),
            }),
        }
    }

    /// An object as it is stored now. It is decoded from a JSON value, as merged pod templates are: decoding a
    /// Deployment from text, too, would be tens of thousands of instructions more.
    pub(crate) async fn live<K: Child>(&self, name: &str) -> Result<Option<K>, ApplyError> {
        let client = self.context.client.clone();
        let kind = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client, self.namespace, &kind);
        let live = api.get_opt(name).await;
        let live = live.map_err(|source| failed::<K>("get", name, source))?;
        let parsed = live.map(|live| serde_json::from_value(json!(live)));
        let parsed = parsed.transpose();
        parsed.map_err(|source| failed::<K>("get", name, kube::Error::SerdeError(source)))
    }

    /// Creates an object that is never written again; `keep` makes of what is stored what the index keeps.
    /// One that is there already is kept.
    pub(crate) async fn create<W, K: Child>(
        &self,
        wanted: &W,
        known: &Children<K>,
        keep: fn(K) -> K,
    ) -> Result<(), ApplyError>
    where
        W: Resource<DynamicType = ()> + Serialize,
    {
        let name = wanted.name_any();
        let body = typed(wanted).to_string().into_bytes();
        let request = Request::new(K::url_path(&(), Some(self.namespace)));
        let request = request.create(&post_params(), body);
        let request = request
            .map_err(|source| failed::<K>("create", &name, kube::Error::BuildRequest(source)))?;
        match self.context.client.request::<K>(request).await {
            Ok(mut created) => {
                created.managed_fields_mut().clear();
                let metadata = created.meta().clone();
                known.put(&self.key(), &metadata, keep(created));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let stored = self.api::<K>().get_metadata(&name).await;
                let stored = stored.map_err(|source| failed::<K>("get", &name, source))?;
                let owner = wanted.owner_references().first();
                let owner = owner.map(|owner| owner.uid.as_str()).unwrap_or_default();
                check_owned_by::<K>(owner, &name, stored.owner_references())
            }
            Err(source) => Err(failed::<K>("create", &name, source)),
        }
    }

    /// Deletes those of a deployment's own objects that are not wanted any more.
    pub(crate) async fn remove_rest<K: Child>(
        &self,
        known: &Children<Stored<K>>,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<(), ApplyError> {
        for stored in known.of(&self.key()) {
            let name = &stored.name;
            // One that only carries our label belongs to another owner.
            if !is_wanted(name) && self.check_owner::<K>(name, &stored.owners).is_ok() {
                self.remove::<K>(name).await?;
            }
        }
        Ok(())
    }

    /// Deletes an object; one that is gone is gone.
    pub(crate) async fn remove<K: Child>(&self, name: &str) -> Result<(), ApplyError> {
        match self.api::<K>().delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(source) => Err(failed::<K>("delete", name, source)),
        }
    }

    /// An object of that name which is not ours is left alone.
    pub(crate) fn check_owner<K: Child>(
        &self,
        name: &str,
        owners: &[OwnerReference],
    ) -> Result<(), ApplyError> {
        check_owned_by::<K>(&self.uid(), name, owners)
    }

    /// Sets a pool's size.
    pub(crate) async fn scale(&self, pool: &str, replicas: u32) -> Result<(), ApplyError> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let scaled = self
            .api::<PdPool>()
            .patch_scale(pool, &merge_params(), &patch)
            .await;
        let scaled = scaled.map_err(|source| failed::<PdPool>("scale", pool, source))?;
        let pools = &self.context.pools;
        let replicas = scaled.spec.and_then(|spec| spec.replicas);
        if let (Some(stored), Some(replicas)) = (pools.find(&self.key(), pool), replicas) {
            let mut stored = PdPool::clone(&stored);
            stored.spec.replicas = replicas;
            pools.put(&self.key(), &scaled.metadata, stored);
        }
        Ok(())
    }

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
        let pool = match component {
            Component::Prefill => &resources.prefill,
            Component::Decode => &resources.decode,
            // A Deployment makes the routers.
            Component::Router => return Ok(()),
        };
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
        match pool.shares_host_network() {
            true => context.host_ports.give(self.namespace, pod, &context.pods),
            false => WorkerPorts::WELL_KNOWN,
        }
    }

    /// Makes the pods of a replica's further nodes, as soon as its first has an address.
    pub(crate) async fn complete(
        &self,
        facts: &PodFacts,
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        let pool = match facts.component {
            Component::Prefill => &resources.prefill,
            Component::Decode => &resources.decode,
            Component::Router => return Ok(()),
        };
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
        match leaving.unanswered {
            true => DrainOutcome::Unanswered,
            false => DrainOutcome::Deadline,
        }
    } else {
        DrainOutcome::Drained
    }
}

fn check_owned_by<K: Child>(
    uid: &str,
    name: &str,
    owners: &[OwnerReference],
) -> Result<(), ApplyError> {
    if owners.iter().any(|owner| owner.uid == uid) {
        return Ok(());
    }
    let owner = owners.first().map_or_else(
        || "no one".to_owned(),
        |owner| format!("{} {}", owner.kind, owner.name),
    );
    Err(ApplyError::Foreign {
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        owner,
    })
}

/// An apiserver's refusal in its own words; its status as a whole is for programs.
fn message_of(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        status.message.clone()
    } else {
        error.to_string()
    }
}

pub(crate) fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

pub(crate) fn merge_params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn now() -> String {
    Timestamp::now().to_string()
}

/// An object with its `apiVersion` and `kind`, which server-side apply wants to read.
pub(crate) fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).expect("Kubernetes objects serialize to JSON");
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    value
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

pub(crate) fn failed<K: Resource<DynamicType = ()>>(
    verb: &'static str,
    name: &str,
    source: kube::Error,
) -> ApplyError {
    ApplyError::Write {
        verb,
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests;
