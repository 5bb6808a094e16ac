//! The verbs of a reconcile's writes.
//!
//! * Pods are created, never applied: a name is a function of the slot, so creating one twice fails.
//! * Pools are created once; their size is written through `/scale` only.
//! * Router, Service, budgets and what a namespace shares are applied (server-side), and not again
//!   while what was applied and what is stored stay as they were.
//! * A deletion carries the UID it was decided for, where the index knows it, and a patch of a pod its resource version.

use super::children::{Child, Children, Stored, is_shared, shared_key};
use super::context::Context;
use super::error::{ApplyError, ReconcileError, failed};
use super::memory::remembered_as;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, Request};
use kube::runtime::events::Event;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pd_crds::{PdDeployment, PdPool};
use serde::Serialize;
use serde_json::{Value, json};

/// Field manager of everything the operator applies.
pub(crate) const MANAGER: &str = "pd-operator";

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

impl<'a> Writer<'a> {
    pub(crate) fn of(
        deployment: &'a PdDeployment,
        context: &'a Context,
    ) -> Result<Self, ReconcileError> {
        let namespace = deployment.metadata.namespace.as_deref();
        Ok(Self {
            context,
            deployment,
            namespace: namespace
                .ok_or_else(|| ReconcileError::NoNamespace(deployment.name_any()))?,
        })
    }
}

impl Writer<'_> {
    pub(crate) fn uid(&self) -> String {
        self.deployment.uid().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> ObjectRef<PdDeployment> {
        ObjectRef::new(&self.deployment.name_any()).within(self.namespace)
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
        let (memories, by) = (&self.context.memories, self.applied_by(holder));
        memories.update(&by, |memory| {
            memory.applied.remember(wanted, patched.meta())
        });
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
        let by = self.applied_by(holder);
        stored.is_some_and(|stored| self.is_as_applied(&by, wanted, &stored))
    }

    pub(crate) fn is_as_applied<K: Child>(&self, by: &str, wanted: &K, stored: &Stored<K>) -> bool {
        let memories = &self.context.memories;
        let is_current = memories.read(by, |memory| memory.applied.is_current(wanted, stored));
        is_current.unwrap_or(false)
    }

    pub(super) fn key_of(&self, holder: Holder) -> ObjectRef<PdDeployment> {
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
    /// One of ours that is there already is kept; says whether it was not.
    pub(crate) async fn create<W, K: Child>(
        &self,
        wanted: &W,
        known: &Children<K>,
        keep: fn(K) -> K,
    ) -> Result<bool, ApplyError>
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
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let stored = self.api::<K>().get_metadata(&name).await;
                let stored = stored.map_err(|source| failed::<K>("get", &name, source))?;
                let owner = wanted.owner_references().first();
                let owner = owner.map(|owner| owner.uid.as_str()).unwrap_or_default();
                check_owned_by::<K>(owner, &name, stored.owner_references()).map(|()| false)
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
                self.remove::<K>(name, Some(stored.uid.clone())).await?;
            }
        }
        Ok(())
    }

    /// Deletes the object of a UID; says whether it was there.
    pub(crate) async fn remove<K: Child>(
        &self,
        name: &str,
        uid: Option<String>,
    ) -> Result<bool, ApplyError> {
        match self.api::<K>().delete(name, &delete_params(uid)).await {
            Ok(_) => Ok(true),
            // Gone, or already another one.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(false)
            }
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

    pub(crate) async fn patch_status<K: Child>(
        &self,
        name: &str,
        status: &impl Serialize,
    ) -> Result<K, ApplyError> {
        let patch = Patch::Merge(json!({"status": status}));
        self.api::<K>()
            .patch_status(name, &merge_params(), &patch)
            .await
            .map_err(|source| failed::<K>("write the status of", name, source))
    }

    /// Writes an Event; one that is lost is lost.
    pub(crate) async fn publish(&self, event: &Event) {
        let about = self.deployment.object_ref(&());
        if let Err(error) = self.context.recorder.publish(event, &about).await {
            tracing::warn!(%error, "cannot write an Event");
        }
    }

    /// Sets a pool's size.
    pub(crate) async fn scale(&self, pool: &str, replicas: u32) -> Result<(), ApplyError> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let scaled = self
            .api::<PdPool>()
            .patch_scale(pool, &merge_params(), &patch)
            .await;
        let scaled = scaled.map_err(|source| failed::<PdPool>("scale", pool, source))?;
        let pools = &self.context.index.pools;
        let replicas = scaled.spec.and_then(|spec| spec.replicas);
        if let (Some(stored), Some(replicas)) = (pools.find(&self.key(), pool), replicas) {
            let mut stored = PdPool::clone(&stored);
            stored.spec.replicas = replicas;
            pools.put(&self.key(), &scaled.metadata, stored);
        }
        Ok(())
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

/// Deletes the object of a UID and no other of its name, where the UID is known.
pub(crate) fn delete_params(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

pub(super) fn now() -> String {
    Timestamp::now().to_string()
}

/// An object with its `apiVersion` and `kind`, which server-side apply wants to read.
pub(crate) fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).expect("Kubernetes objects serialize to JSON");
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    value
}
