//! Scheduling: which pods are placed together, and how close.

use crate::rules;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the pods of a deployment get their nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[x_kube(validation = rules::KUEUE_NEEDS_QUEUE.cel())]
#[serde(rename_all = "camelCase")]
pub struct SchedulingSpec {
    /// Who gives nodes to a gang: pods that are of use only together, which are those of a replica that spans nodes,
    /// and the first prefill and decode replica of a deployment. `Auto` is Kubernetes itself where the cluster serves
    /// PodGroups of `scheduling.k8s.io`, and else the pods' scheduler, pod by pod; `Coscheduling` and `Volcano` are the
    /// schedulers of these names; with `Kueue` each gang, and each other replica, waits in a queue until there is quota for
    /// all of it; `None` makes no gangs.
    #[serde(default)]
    pub gang: GangScheduling,
    /// Kueue's LocalQueue of the same namespace in which workers wait; with `gang: Kueue`, and only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub queue: Option<String>,
    /// How long a gang may keep nodes while no node has room for the rest of it. Then it gives them back, and tries
    /// again later. Where nodes are made on demand, longer than that takes.
    #[serde(default = "release_after")]
    #[schemars(range(min = 10, max = 86_400))]
    pub release_after_seconds: i32,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GangScheduling {
    #[default]
    Auto,
    Kubernetes,
    Coscheduling,
    Volcano,
    Kueue,
    None,
}

/// How close to each other the pods of a replica go.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// Label of nodes that names their domain, such as a rack or a group of nodes with NVLink between them: all pods
    /// of a replica go to one domain.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Whether a replica has its domain to itself, among replicas of this namespace that ask for the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
}

// === impl SchedulingSpec ===

impl Default for SchedulingSpec {
    fn default() -> Self {
        Self {
            gang: GangScheduling::Auto,
            queue: None,
            release_after_seconds: release_after(),
        }
    }
}

// === impl GangScheduling ===

impl GangScheduling {
    /// As a spec has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::Kubernetes => "Kubernetes",
            Self::Coscheduling => "Coscheduling",
            Self::Volcano => "Volcano",
            Self::Kueue => "Kueue",
            Self::None => "None",
        }
    }
}

fn release_after() -> i32 {
    300
}
