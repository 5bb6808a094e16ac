//! What this process remembers of each deployment between two reconciles. None of it must last: an
//! operator that takes over begins without, and reads it from the cluster or finds it out again.

use super::admin_token::AdminToken;
use super::children::Stored;
use super::gangs::Released;
use super::peer_keys::PeerKeys;
use super::probe::Probes;
use super::router_template::Template;
use super::version::version_of;
use super::worker_key::WorkerKey;
use super::written_statuses::WrittenStatuses;
use crate::scaler::Scaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use pd_crds::json_order::sorted;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};

/// What is remembered of one deployment, or of the objects that the deployments of a namespace share.
#[derive(Default)]
pub(crate) struct DeploymentMemory {
    /// The admin token, once it was read.
    pub(crate) token: Option<AdminToken>,
    /// Those of its processes, once they were read.
    pub(crate) peer_keys: Option<PeerKeys>,
    /// That of its workers, once it was read.
    pub(crate) worker_key: Option<WorkerKey>,
    /// Of the routers.
    pub(crate) template: Option<Template>,
    /// Of a deployment that scales by load; taken out while that is reconciled.
    pub(crate) scaler: Option<Scaler>,
    /// Reconciles that failed in a row.
    pub(crate) failures: u32,
    pub(crate) applied: ApplyCache,
    pub(crate) statuses: WrittenStatuses,
    /// That a gang of it gave back its nodes.
    pub(crate) released: Option<Released>,
    /// Gangs whose PodGroups were made.
    pub(crate) pod_groups: HashSet<String>,
    /// Of its workers whose readiness gate has not latched yet.
    pub(crate) probes: Probes,
}

/// All that is remembered, by the deployment's UID; of shared objects, by a name for their namespace.
#[derive(Default)]
pub(crate) struct Memories {
    by_uid: Mutex<HashMap<String, DeploymentMemory>>,
}

/// What this process applied: by the object's UID, a digest of it and the version that it became.
#[derive(Debug, Default)]
pub(crate) struct ApplyCache {
    applied: HashMap<String, ([u8; 32], u64)>,
}

// === impl Memories ===

impl Memories {
    /// What `read` finds; `None` where nothing is remembered.
    pub(crate) fn read<T>(
        &self,
        uid: &str,
        read: impl FnOnce(&DeploymentMemory) -> T,
    ) -> Option<T> {
        self.by_uid.lock().get(uid).map(read)
    }

    pub(crate) fn update<T>(
        &self,
        uid: &str,
        update: impl FnOnce(&mut DeploymentMemory) -> T,
    ) -> T {
        let mut by_uid = self.by_uid.lock();
        if let Some(memory) = by_uid.get_mut(uid) {
            return update(memory);
        }
        update(by_uid.entry(uid.to_owned()).or_default())
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.by_uid.lock().remove(uid);
    }
}

// === impl ApplyCache ===

impl ApplyCache {
    /// Whether `stored` is the result of applying `wanted`, and unchanged since.
    pub(crate) fn is_current<K: Serialize>(&self, wanted: &K, stored: &Stored<K>) -> bool {
        let applied = self.applied.get(&stored.uid);
        applied.is_some_and(|(digest, version)| {
            *digest == digest_of(wanted) && *version == stored.version
        })
    }

    pub(crate) fn remember<K: Serialize>(&mut self, wanted: &K, patched: &ObjectMeta) {
        let uid = patched.uid.clone().unwrap_or_default();
        let entry = (digest_of(wanted), version_of(patched));
        self.applied.insert(uid, entry);
    }
}

fn digest_of<K: Serialize>(object: &K) -> [u8; 32] {
    let json = serde_json::to_value(object).expect("Kubernetes objects serialize to JSON");
    Sha256::digest(sorted(json).to_string()).into()
}

/// Under which name it is remembered what was applied for a namespace: no UID has a space.
pub(crate) fn remembered_as(namespace: &str) -> String {
    format!("namespace {namespace}")
}
