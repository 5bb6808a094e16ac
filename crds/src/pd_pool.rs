//! `PDPool`: the replicas of one role of a `PDDeployment`, owned by the operator, with `/scale`.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many workers of one role there shall be. What they run is the `PDDeployment`'s to say.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::duplicated_attributes,
    reason = "two columns of one type are no duplicates"
)]
#[kube(
    group = "pdserve.io",
    version = "v1alpha1",
    kind = "PDPool",
    root = "PdPool",
    singular = "pdpool",
    plural = "pdpools",
    shortname = "pdp",
    category = "pdserve",
    namespaced,
    status = "PdPoolStatus",
    derive = "PartialEq",
    doc = "Prefill or decode workers of a PDDeployment; scale it with kubectl scale or an HPA.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(
        name = "Routable",
        type_ = "integer",
        json_path = ".status.routable",
        description = "Replicas that every router sends requests to."
    ),
    printcolumn(
        name = "Draining",
        type_ = "integer",
        json_path = ".status.draining",
        description = "Replicas on their way out."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PdPoolSpec {
    /// Name of the `PDDeployment` in the same namespace.
    #[schemars(length(min = 1, max = 40))]
    pub deployment: String,
    /// What the workers of this pool do.
    pub role: PoolRole,
    /// Number of workers.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PoolRole {
    Prefill,
    Decode,
}

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PdPoolStatus {
    /// Generation of the spec that this status describes; -1 before the operator has seen any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Workers that exist and do not leave.
    #[serde(default)]
    pub replicas: i32,
    /// Workers whose containers are ready.
    #[serde(default)]
    pub ready: i32,
    /// Workers that every router sends requests to.
    #[serde(default)]
    pub routable: i32,
    /// Workers on their way out.
    #[serde(default)]
    pub draining: i32,
    /// Selects the pool's pods, for an HPA.
    #[serde(default)]
    pub selector: String,
}
