//! What every reconcile shares: the client, the watches' indexes, and what was applied.

use super::admin::Admin;
use super::children::{Children, Stored};
use super::host_ports::HostPorts;
use super::metrics::Metrics;
use super::nodes::Nodes;
use super::probe::Probes;
use super::report::StatusCache;
use super::routers::Template;
use super::token::Held;
use crate::controller::build::BuildConfig;
use crate::http_client::HttpClient;
use crate::scaler::Scaler;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::Recorder;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use pd_crds::pod::Pod;
use pd_crds::{PdDeployment, PdPool};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Debug, Formatter};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Everything a reconcile needs beside its deployment.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: BuildConfig,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) nodes: Nodes,
    pub(crate) host_ports: HostPorts,
    pub(crate) pods: Children<Pod>,
    pub(crate) pools: Children<PdPool>,
    pub(crate) deployments: Children<Stored<Deployment>>,
    pub(crate) services: Children<Stored<Service>>,
    pub(crate) accounts: Children<Stored<ServiceAccount>>,
    pub(crate) bindings: Children<Stored<RoleBinding>>,
    pub(crate) budgets: Children<Stored<PodDisruptionBudget>>,
    pub(crate) policies: Children<Stored<NetworkPolicy>>,
    pub(crate) revisions: Children<ControllerRevision>,
    /// Held while shared objects are written or removed, so that they are made once.
    pub(crate) sharing: tokio::sync::Mutex<()>,
    pub(crate) applied: ApplyCache,
    pub(crate) written: StatusCache,
    pub(crate) probes: Probes,
    /// By the deployment's UID.
    pub(crate) tokens: Mutex<HashMap<String, Held>>,
    /// Of routers, by the deployment's UID.
    pub(crate) templates: Mutex<HashMap<String, Template>>,
    /// Of deployments that scale by load, by UID; one is away while its deployment is reconciled.
    pub(crate) scalers: Mutex<HashMap<String, Scaler>>,
    pub(crate) scrape_client: HttpClient,
    /// Failures in a row, by the deployment's UID.
    pub(crate) failures: Mutex<HashMap<String, u32>>,
}

/// What this process applied, and the resource version of the result.
#[derive(Debug, Default)]
pub(crate) struct ApplyCache {
    /// By the deployment's UID; of shared objects, by a name for their namespace.
    by_deployment: Mutex<HashMap<String, AppliedVersions>>,
}

/// Digest of what was applied and the version it became, by the object's UID.
type AppliedVersions = HashMap<String, ([u8; 32], u64)>;

// === impl Context ===

impl Debug for Context {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Context {
    /// The client of a deployment whose token was read.
    ///
    /// # Panics
    /// Before the reconcile has read the token.
    pub(crate) fn admin(&self, deployment: &PdDeployment) -> Admin {
        let uid = deployment.uid().unwrap_or_default();
        let tokens = self.tokens.lock();
        let held = tokens.get(&uid);
        held.expect("a reconcile reads the token first")
            .admin
            .clone()
    }

    /// Since when a deployment's token holds; nothing if it always did, as far as is known.
    pub(crate) fn token_since(&self, uid: &str) -> Option<Timestamp> {
        self.tokens.lock().get(uid)?.since
    }

    /// Counts a failed reconcile; gives how many failed in a row before it.
    pub(crate) fn failed(&self, deployment: &PdDeployment) -> u32 {
        let mut failures = self.failures.lock();
        let count = failures
            .entry(deployment.uid().unwrap_or_default())
            .or_default();
        *count += 1;
        *count - 1
    }

    pub(crate) fn succeeded(&self, deployment: &PdDeployment) {
        let uid = deployment.uid().unwrap_or_default();
        self.failures.lock().remove(&uid);
    }

    /// Forgets a deployment that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.tokens.lock().remove(uid);
        self.failures.lock().remove(uid);
        self.scalers.lock().remove(uid);
        self.templates.lock().remove(uid);
        self.applied.forget(uid);
        self.written.forget(uid);
        self.probes.keep(uid, &BTreeSet::new());
        self.metrics.deployments.forget(uid);
    }
}

// === impl ApplyCache ===

impl ApplyCache {
    /// Whether `stored` is the result of applying `wanted` for a deployment, and no one changed it
    /// since.
    pub(crate) fn is_current<K: Serialize>(
        &self,
        deployment: &str,
        wanted: &K,
        stored: &Stored<K>,
    ) -> bool {
        let by_deployment = self.by_deployment.lock();
        let left = by_deployment.get(deployment);
        left.and_then(|left| left.get(&stored.uid))
            .is_some_and(|(digest, version)| {
                *digest == digest_of(wanted) && *version == stored.version
            })
    }

    pub(crate) fn remember<K: Serialize>(
        &self,
        deployment: &str,
        wanted: &K,
        patched: &ObjectMeta,
    ) {
        let entry = (digest_of(wanted), version_of(patched));
        let mut by_deployment = self.by_deployment.lock();
        let left = by_deployment.entry(deployment.to_owned()).or_default();
        left.insert(patched.uid.clone().unwrap_or_default(), entry);
    }

    pub(crate) fn forget(&self, deployment: &str) {
        self.by_deployment.lock().remove(deployment);
    }
}

fn digest_of<K: Serialize>(object: &K) -> [u8; 32] {
    let json = serde_json::to_value(object).expect("Kubernetes objects serialize to JSON");
    Sha256::digest(json.to_string()).into()
}

/// Names a state of an object as far as others than its controller change it: the generation where
/// there is one, which status writes leave alone, with the metadata that a generation does not
/// cover. Another object of the same name is another state.
pub(crate) fn version_of(metadata: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.uid.hash(&mut hasher);
    match metadata.generation {
        Some(generation) => {
            generation.hash(&mut hasher);
            metadata.labels.hash(&mut hasher);
            metadata.finalizers.hash(&mut hasher);
            let rest = (&metadata.owner_references, &metadata.deletion_timestamp);
            format!("{rest:?}").hash(&mut hasher);
        }
        None => metadata.resource_version.hash(&mut hasher),
    }
    hasher.finish()
}
