//! What every reconcile shares: the client, the watches' indexes, and what is remembered.

use super::admin::Admin;
use super::children::{Children, Stored};
use super::held_token::Held;
use super::host_ports::HostPorts;
use super::memory::Memories;
use super::metrics::Metrics;
use super::nodes::Nodes;
use super::probe::Probes;
use crate::controller::build::config::BuildConfig;
use crate::http_client::HttpClient;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::Recorder;
use kube::{Client, ResourceExt};
use pd_crds::pod::Pod;
use pd_crds::{PdDeployment, PdPool};
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Formatter};
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
    pub(crate) memories: Memories,
    pub(crate) probes: Probes,
    pub(crate) scrape_client: HttpClient,
}

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
        let admin = |held: &Held| held.admin.clone();
        let held = self
            .memories
            .read(&uid, |memory| memory.token.as_ref().map(admin));
        held.flatten().expect("a reconcile reads the token first")
    }

    /// Since when a deployment's token holds; nothing if it always did, as far as is known.
    pub(crate) fn token_since(&self, uid: &str) -> Option<Timestamp> {
        let since = |held: &Held| held.since;
        let held = self
            .memories
            .read(uid, |memory| memory.token.as_ref().and_then(since));
        held.flatten()
    }

    /// Counts a failed reconcile; gives how many failed in a row before it.
    pub(crate) fn failed(&self, deployment: &PdDeployment) -> u32 {
        let uid = deployment.uid().unwrap_or_default();
        self.memories.update(&uid, |memory| {
            memory.failures += 1;
            memory.failures - 1
        })
    }

    pub(crate) fn succeeded(&self, deployment: &PdDeployment) {
        let uid = deployment.uid().unwrap_or_default();
        self.memories.update(&uid, |memory| memory.failures = 0);
    }

    /// Forgets a deployment that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.memories.forget(uid);
        self.probes.keep(uid, &BTreeSet::new());
        self.metrics.deployments.forget(uid);
    }
}
