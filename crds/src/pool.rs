//! A pool: the replicas of one role, their size and their shape.

use crate::engine::EngineArg;
use crate::pd_pool::PoolRole;
use crate::rules;
use crate::scheduling::TopologySpec;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The resource that NVIDIA's device plugin offers: one GPU.
pub const GPU: &str = "nvidia.com/gpu";
/// SGLang's flag by which ranks of tensor parallelism share out the requests between them.
const DP_ATTENTION: &str = "enable-dp-attention";

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolsSpec {
    /// Workers that read the prompt and compute its KV cache.
    #[serde(default)]
    pub prefill: PoolSpec,
    /// Workers that produce the tokens.
    #[serde(default)]
    pub decode: PoolSpec,
}

impl PoolsSpec {
    pub fn of(&self, role: PoolRole) -> &PoolSpec {
        match role {
            PoolRole::Prefill => &self.prefill,
            PoolRole::Decode => &self.decode,
        }
    }
}

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = rules::FIXED_OR_BOUNDS.cel(),
    validation = rules::BOUNDS_TOGETHER.cel(),
    validation = rules::MIN_BELOW_MAX.cel(),
    validation = rules::RANKS_FILL_NODES.cel()
)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    /// Fixed number of replicas. Default: 1, where no bounds are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// Least number of replicas when the pool is scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_replicas: Option<i32>,
    /// Largest number of replicas when the pool is scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: Option<i32>,
    /// Tensor parallel ranks of a replica.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub tp: i32,
    /// Pipeline stages of a replica.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub pp: i32,
    /// Data parallel ranks of a replica.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub dp: i32,
    /// Nodes that a replica spans, for more ranks than one node has GPUs: its ranks are spread evenly
    /// over as many pods, which start, serve and leave as one.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub nodes: i32,
    /// How close to each other the pods of a replica go. Default: anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologySpec>,
    /// Engine flags of this pool, on top of `spec.engine.args`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 64))]
    pub args: Vec<EngineArg>,
    /// Resources of the worker's container, GPUs among them; of each of its pods. Without GPUs it
    /// computes on CPUs. What GPU workers put into `/dev/shm` counts as their memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::kube_schema::resource_requirements")]
    pub resources: Option<ResourceRequirements>,
    /// Fields of a Pod, merged over those that the operator writes: maps merge, lists of named
    /// items (containers, env, volumes) merge by name, other lists replace. The worker's container is
    /// named `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// Overrides of a Pod, as the user wrote them.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Labels and annotations to add; names below `pdserve.io/` are the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_object")]
    pub metadata: Option<serde_json::Value>,
    /// Fields of a Pod's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_object")]
    pub spec: Option<serde_json::Value>,
}

// === impl PoolSpec ===

impl Default for PoolSpec {
    fn default() -> Self {
        Self {
            replicas: None,
            min_replicas: None,
            max_replicas: None,
            tp: one(),
            pp: one(),
            dp: one(),
            nodes: one(),
            topology: None,
            args: Vec::new(),
            resources: None,
            pod_template: None,
        }
    }
}

impl PoolSpec {
    /// Replicas before any scaling: the fixed number, else the lower bound, else 1.
    pub fn initial_replicas(&self) -> i32 {
        self.replicas.or(self.min_replicas).unwrap_or(1)
    }

    /// Whether it has more than one replica, or may have after scaling.
    pub fn may_be_several(&self) -> bool {
        self.max_replicas.or(self.replicas).unwrap_or(1) > 1
    }

    /// GPUs of one replica: those that it asks for on all its nodes, or else one for each rank.
    pub fn gpus(&self) -> i64 {
        let limit = self.limit(GPU).map(|limit| limit.0.as_str());
        let is_number = |text: &&str| {
            (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let asked = limit
            .filter(is_number)
            .and_then(|text| text.parse::<i64>().ok());
        asked.map_or_else(|| self.ranks(), |gpus| gpus * i64::from(self.nodes))
    }

    /// Ranks of one replica, each of which uses a GPU, under the arguments of the engine: with SGLang's data-parallel
    /// attention the ranks of tensor parallelism are those of data parallelism, too.
    pub fn ranks_under(&self, engine: &[EngineArg]) -> i64 {
        let mut args = engine.iter().chain(&self.args);
        if args.any(|arg| arg.name == DP_ATTENTION) {
            return i64::from(self.tp).saturating_mul(self.pp.into());
        }
        self.ranks()
    }

    /// tp × pp × dp.
    pub fn ranks(&self) -> i64 {
        let sizes = [self.tp, self.pp, self.dp].map(i64::from);
        sizes.into_iter().fold(1, i64::saturating_mul)
    }

    /// How much of a resource the worker's container may have.
    pub fn limit(&self, resource: &str) -> Option<&Quantity> {
        self.resources.as_ref()?.limits.as_ref()?.get(resource)
    }
}

fn one() -> i32 {
    1
}

/// A full Pod schema would be larger than the rest of the CRD, so the operator checks these fields
/// when it builds the pod.
fn free_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

#[cfg(test)]
mod tests {
    //! Facts about the GPUs of a pool.

    use super::*;
    use serde_json::json;

    fn mk_pool(pool: serde_json::Value) -> PoolSpec {
        serde_json::from_value(pool).expect("a pool")
    }

    #[test]
    fn a_replica_costs_the_gpus_that_it_asks_for() {
        let limits = |gpus: &str| json!({"limits": {"nvidia.com/gpu": gpus}});
        // DeepSeek with data-parallel attention: 16 ranks of each kind on 16 GPUs.
        let wide = json!({"tp": 16, "dp": 16, "nodes": 2, "resources": limits("8")});
        assert_eq!(mk_pool(wide).gpus(), 16);
        assert_eq!(mk_pool(json!({"tp": 4, "pp": 2})).gpus(), 8);
        assert_eq!(
            mk_pool(json!({"tp": 4, "resources": limits("4k")})).gpus(),
            4
        );
    }

    #[test]
    fn with_data_parallel_attention_the_ranks_are_those_of_tensor_parallelism() {
        let flag = EngineArg {
            name: "enable-dp-attention".to_owned(),
            value: None,
        };
        let pool = mk_pool(json!({"tp": 16, "dp": 16}));
        assert_eq!(pool.ranks_under(&[]), 256);
        assert_eq!(pool.ranks_under(&[flag]), 16);
    }
}
