//! GPUs that a deployment asks for, beside those that a cluster has.

use crate::pool::{GPU, PoolSpec, PoolsSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// What both pools ask for at their first sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDemand {
    prefill: Part,
    decode: Part,
}

/// Replicas, and the GPUs of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    replicas: i64,
    gpus: i64,
}

/// GPUs among what a node lets pods take.
pub fn gpus_of(allocatable: &BTreeMap<String, Quantity>) -> i64 {
    let gpus = allocatable.get(GPU);
    gpus.and_then(|gpus| gpus.0.parse().ok()).unwrap_or(0)
}

// === impl GpuDemand ===

impl GpuDemand {
    pub fn of(pools: &PoolsSpec) -> Self {
        Self {
            prefill: Part::of(&pools.prefill),
            decode: Part::of(&pools.decode),
        }
    }

    /// In words, where it is more than there are.
    pub fn exceeding(self, has: i64) -> Option<String> {
        let needs = self.prefill.total().saturating_add(self.decode.total());
        (needs > has).then(|| format!("needs {needs} GPUs ({self}), and the cluster has {has}"))
    }
}

impl Display for GpuDemand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { prefill, decode } = self;
        write!(
            f,
            "prefill {} × {}, decode {} × {}",
            prefill.replicas, prefill.gpus, decode.replicas, decode.gpus
        )
    }
}

// === impl Part ===

impl Part {
    fn of(pool: &PoolSpec) -> Self {
        let asks = pool.limit(GPU).is_some_and(|limit| limit.0 != "0");
        Self {
            replicas: if asks {
                pool.initial_replicas().into()
            } else {
                0
            },
            gpus: pool.gpus(),
        }
    }

    fn total(self) -> i64 {
        self.replicas.saturating_mul(self.gpus)
    }
}

#[cfg(test)]
mod tests {
    //! Facts about what is asked for and what there is.

    use super::*;
    use serde_json::json;

    #[test]
    fn what_exceeds_a_cluster_is_said_with_its_parts() {
        let pool = |replicas: i32, limits: serde_json::Value| json!({"replicas": replicas, "tp": 16, "nodes": 2, "resources": {"limits": limits}});
        let gpus = json!({"nvidia.com/gpu": "8"});
        let pools = json!({"prefill": pool(1, gpus.clone()), "decode": pool(1, gpus)});
        let pools: PoolsSpec = serde_json::from_value(pools).expect("pools");
        let demand = GpuDemand::of(&pools);
        assert_eq!(
            demand.exceeding(16).as_deref(),
            Some("needs 32 GPUs (prefill 1 × 16, decode 1 × 16), and the cluster has 16")
        );
        assert_eq!(demand.exceeding(32), None);
        let on_cpus = json!({"prefill": pool(9, json!({})), "decode": pool(9, json!({}))});
        let on_cpus: PoolsSpec = serde_json::from_value(on_cpus).expect("pools");
        assert_eq!(GpuDemand::of(&on_cpus).exceeding(0), None);
    }
}
