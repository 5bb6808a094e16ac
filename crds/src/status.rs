//! Status of a `PDDeployment`: what the operator saw and did.

use crate::model::{CachePlace, HuggingFaceSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest number of decisions that the status keeps.
pub const DECISIONS_MAX: usize = 10;
/// The generation that a status observed which no operator has written yet.
pub const UNSEEN: i64 = -1;
/// Longest message of a decision.
pub const MESSAGE_BYTES_MAX: usize = 256;

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PdDeploymentStatus {
    /// Generation of the spec that this status describes; -1 before the operator has seen any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Progressing`, `PrefillReady`, `DecodeReady`, `RouterReady`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(schema_with = "crate::kube_schema::conditions")]
    pub conditions: Vec<Condition>,
    /// In a word how it is, and how far where a model is fetched.
    #[serde(default)]
    pub summary: String,
    /// The model that is fetched from a hub; nothing where it comes from elsewhere.
    // Written also when there is none: a merge patch keeps what it does not name.
    #[serde(default)]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub model: Option<ModelStatus>,
    /// Counts of each pool.
    #[serde(default)]
    pub pools: PoolsStatus,
    /// Where clients reach the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Digest of all that must be equal for KV bytes to mean the same, as the workers report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_compat: Option<String>,
    /// The revisions between which a rollout moves.
    #[serde(default)]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub revision: RevisionStatus,
    /// The last decisions of the autoscaler, newest first.
    // Written also when empty: a merge patch keeps what it does not name.
    #[serde(default)]
    #[schemars(length(max = 10))]
    pub decisions: Vec<Decision>,
}

/// A model from a hub. Everything is written each time, because a merge patch keeps what it does not name.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// Repository.
    pub repo: String,
    /// Branch, tag or commit as the spec names it.
    pub revision: String,
    /// The one file that is wanted; empty where all are.
    #[serde(default)]
    pub file: String,
    /// The claim of the volume it is on; empty where nodes keep it.
    #[serde(default)]
    pub claim_name: String,
    /// The folder of the nodes that keep it; empty where it is on a volume.
    #[serde(default)]
    pub host_path: String,
    /// What the revision was resolved to; empty until that is known, and on a volume until all of it is there.
    #[serde(default)]
    pub commit: String,
    /// Bytes that are there; of nodes, on the one that lacks most.
    #[serde(default)]
    pub bytes: i64,
    /// Bytes in all; 0 until the hub has said.
    #[serde(default)]
    pub total_bytes: i64,
    /// How far it is, or what keeps it.
    #[serde(default)]
    pub message: String,
    /// Whether it does not go forward: the hub, the volume or the cluster refuses it, and the message says why.
    #[serde(default)]
    pub refused: bool,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolsStatus {
    /// Replicas of the prefill pool, by state.
    #[serde(default)]
    pub prefill: PoolStatus,
    /// Replicas of the decode pool, by state.
    #[serde(default)]
    pub decode: PoolStatus,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Replicas wanted.
    #[serde(default)]
    pub desired: i32,
    /// Replicas that exist and do not leave.
    #[serde(default)]
    pub current: i32,
    /// Replicas whose containers are ready.
    #[serde(default)]
    pub ready: i32,
    /// Replicas that every router sends requests to.
    #[serde(default)]
    pub routable: i32,
    /// Replicas on their way out.
    #[serde(default)]
    pub draining: i32,
    /// Replicas of the newest revision.
    #[serde(default)]
    pub updated: i32,
    /// `routable/desired`, for a column.
    #[serde(default)]
    pub summary: String,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// Revision that serves.
    #[serde(default)]
    pub current: String,
    /// Revision that the spec asks for; equal to `current` when no rollout is under way.
    #[serde(default)]
    pub update: String,
}

// === impl ModelStatus ===

impl ModelStatus {
    /// The status of a source of which nothing is known yet.
    pub fn of(source: &HuggingFaceSource) -> Self {
        let (claim_name, host_path) = match source.place() {
            Some(CachePlace::Claim(name)) => (name, ""),
            Some(CachePlace::Nodes(path)) => ("", path),
            None => ("", ""),
        };
        Self {
            repo: source.repo.clone(),
            revision: source.revision().to_owned(),
            file: source.file.clone().unwrap_or_default(),
            claim_name: claim_name.to_owned(),
            host_path: host_path.to_owned(),
            ..Self::default()
        }
    }

    /// Whether two are of one source.
    pub fn is_of_source(&self, other: &Self) -> bool {
        let Self {
            repo,
            revision,
            file,
            claim_name,
            host_path,
            commit: _,
            bytes: _,
            total_bytes: _,
            message: _,
            refused: _,
        } = self;
        let theirs = [&other.repo, &other.revision, &other.file];
        let is_there = [claim_name, host_path] == [&other.claim_name, &other.host_path];
        is_there && [repo, revision, file] == theirs
    }

    /// Whether workers can be made that read it: they find all of it, or fetch it themselves.
    pub fn is_resolved(&self) -> bool {
        !self.commit.is_empty()
    }

    /// Whether all of it is there, wherever a worker is that reads it.
    pub fn is_fetched(&self) -> bool {
        self.is_resolved() && self.bytes >= self.total_bytes
    }
}

/// One decision of the autoscaler.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When it was taken.
    #[schemars(schema_with = "crate::kube_schema::time")]
    pub time: Time,
    /// Replicas before.
    pub from: PoolReplicas,
    /// Replicas asked for.
    pub to: PoolReplicas,
    /// What asked for it, in one CamelCase word.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What kept the decision from going further, in one CamelCase word; `None` if nothing did.
    #[schemars(length(max = 64))]
    pub limited_by: String,
    /// Both, with the figures that led to it, for people.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub message: String,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PoolReplicas {
    /// Of the prefill pool.
    pub prefill: i32,
    /// Of the decode pool.
    pub decode: i32,
}
