//! What every reconcile shares: the environment, the watches' index, and what is remembered.

use super::index::Index;
use super::memory::Memories;
use super::metrics::Metrics;
use crate::controller::build::config::BuildConfig;
use kube::runtime::events::Recorder;
use kube::{Client, ResourceExt};
use pd_crds::PdDeployment;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// Everything a reconcile needs beside its deployment.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: BuildConfig,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) index: Index,
    pub(crate) memories: Memories,
    /// Held while shared objects are written or removed, so that they are made once.
    pub(crate) sharing: tokio::sync::Mutex<()>,
}

// === impl Context ===

impl Debug for Context {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Context {
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
        self.metrics.deployments.forget(uid);
    }
}
