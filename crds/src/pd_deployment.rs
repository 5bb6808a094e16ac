//! `PDDeployment`: one model served by a prefill pool, a decode pool and a router.

use crate::drain::DrainSpec;
use crate::engine::{EngineKind, EngineSpec};
use crate::kv::KvSpec;
use crate::model::ModelSpec;
use crate::pool::PoolsSpec;
use crate::rollout::RolloutSpec;
use crate::router::RouterSpec;
use crate::rules;
use crate::scaling::{AutoscalingSpec, ScalingMode};
use crate::scheduling::SchedulingSpec;
use crate::security::{PeerTrust, SecuritySpec};
use crate::slo::SloSpec;
use crate::status::PdDeploymentStatus;
use crate::tracing::TracingSpec;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the user wants served, and how.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "pdserve.io",
    version = "v1alpha1",
    kind = "PDDeployment",
    root = "PdDeployment",
    singular = "pddeployment",
    plural = "pddeployments",
    shortname = "pdd",
    category = "pdserve",
    namespaced,
    status = "PdDeploymentStatus",
    derive = "PartialEq",
    doc = "One model served with prefill and decode in separate pools behind one router.",
    validation = rules::NAME.cel(),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether a prefill and a decode worker serve behind the router."
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.summary",
        description = "In a word how it is; how far while a model is fetched."
    ),
    printcolumn(
        name = "Prefill",
        type_ = "string",
        json_path = ".status.pools.prefill.summary",
        description = "Routable prefill replicas of those desired."
    ),
    printcolumn(
        name = "Decode",
        type_ = "string",
        json_path = ".status.pools.decode.summary",
        description = "Routable decode replicas of those desired."
    ),
    printcolumn(
        name = "Rev",
        type_ = "string",
        json_path = ".status.revision.current",
        description = "Revision that serves."
    ),
    printcolumn(
        name = "Scaling",
        type_ = "string",
        json_path = ".spec.autoscaling.mode",
        description = "Who sets the replica counts."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Model",
        type_ = "string",
        json_path = ".spec.model.servedModelName",
        priority = 1
    ),
    printcolumn(
        name = "KV compat",
        type_ = "string",
        json_path = ".status.kvCompat",
        priority = 1
    )
)]
#[x_kube(
    validation = rules::BOTH_POOLS_OR_NONE.cel(),
    validation = rules::AUTOSCALING_NEEDS_BOUNDS.cel(),
    validation = rules::BUDGET_COVERS_MINIMUM.cel(),
    validation = rules::engines::PREFILL_RANKS.cel(),
    validation = rules::engines::DECODE_RANKS.cel(),
    validation = rules::engines::PREFILL_GPUS.cel(),
    validation = rules::engines::DECODE_GPUS.cel(),
    validation = rules::engines::PDSERVE_DTYPE.cel(),
    validation = rules::engines::PDSERVE_KV_DTYPE.cel(),
    validation = rules::engines::PDSERVE_PAGE.cel(),
    validation = rules::engines::SGLANG_TRANSPORT.cel(),
    validation = rules::engines::SGLANG_KV_DTYPE.cel(),
    validation = rules::engines::OTHERS_SHARE_NO_MEMORY.cel(),
    validation = rules::engines::OTHERS_ARE_PLAIN.cel(),
    validation = rules::engines::OTHERS_KEEP_WEIGHTS.cel(),
    validation = rules::engines::WEIGHTS_NAME_THEIR_VERSION.cel(),
    validation = rules::engines::VLLM_TRANSPORT.cel(),
    validation = rules::engines::VLLM_KV_DTYPE.cel(),
    validation = rules::engines::VLLM_PREFILL_NODES.cel(),
    validation = rules::engines::VLLM_DECODE_NODES.cel()
)]
#[serde(rename_all = "camelCase")]
pub struct PdDeploymentSpec {
    /// The model to serve.
    pub model: ModelSpec,
    /// The engine that both pools run.
    #[serde(default)]
    pub engine: EngineSpec,
    /// The prefill pool and the decode pool.
    pub pools: PoolsSpec,
    /// The KV cache and its way from prefill to decode.
    #[serde(default)]
    pub kv: KvSpec,
    /// The router in front of both pools.
    #[serde(default)]
    pub router: RouterSpec,
    /// How the processes of this deployment know each other.
    #[serde(default)]
    pub security: SecuritySpec,
    /// Where spans of requests go; nowhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<TracingSpec>,
    /// Latency goals. The autoscaler sizes the pools to meet them.
    #[serde(default)]
    pub slo: SloSpec,
    /// Who sets the replica counts of the pools, and within which bounds.
    #[serde(default)]
    pub autoscaling: AutoscalingSpec,
    /// How a changed spec replaces running workers.
    #[serde(default)]
    pub rollout: RolloutSpec,
    /// Which pods get their nodes together.
    #[serde(default)]
    pub scheduling: SchedulingSpec,
    /// How a worker leaves.
    #[serde(default)]
    pub drain: DrainSpec,
    /// Secrets to pull the images of all pods with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<PullSecret>,
    /// Let every worker finish and leave, and keep all else: routers stay and refuse requests,
    /// retriably. Taken back, the pools come back in their last size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// A Secret of type `kubernetes.io/dockerconfigjson`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PullSecret {
    /// Name of a Secret of the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

// === impl PdDeploymentSpec ===

impl PdDeploymentSpec {
    /// Whether the operator decides by load how many replicas there are, or would.
    pub fn scales_by_load(&self) -> bool {
        match self.autoscaling.mode {
            ScalingMode::Auto | ScalingMode::Advise => !self.suspend,
            ScalingMode::External | ScalingMode::Off => false,
        }
    }

    /// Whether its processes prove to each other that they belong together. SGLang's cannot, and a spec of it that was
    /// accepted before there was the field does not say so.
    pub fn authenticates_peers(&self) -> bool {
        self.security.peers == PeerTrust::Authenticated && self.engine.kind == EngineKind::Pdserve
    }
}

// === impl PdDeployment ===

impl PdDeployment {
    /// Name by which clients ask for the model: the spec's, or else the object's.
    pub fn served_model_name(&self) -> &str {
        let own = self.metadata.name.as_deref().unwrap_or_default();
        self.spec.model.served_model_name.as_deref().unwrap_or(own)
    }
}
