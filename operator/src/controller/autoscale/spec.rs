//! What the user asks of scaling: bounds, budget, goals, windows.

use super::per_role::PerRole;
use pd_crds::PdDeploymentSpec;
use pd_crds::pool::PoolSpec;
use pd_crds::scaling::ScalingMode;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScalingSpec {
    pub(crate) mode: ScalingMode,
    pub(crate) bounds: PerRole<Bounds>,
    /// GPUs of a replica.
    pub(crate) gpus: PerRole<u32>,
    /// GPUs of both pools together.
    pub(crate) max_gpus: Option<u32>,
    /// A GPU that one pool gives up is one that the other can have.
    pub(crate) shares_nodes: bool,
    /// Seconds from a request's arrival to its first token.
    pub(crate) ttft_s: Option<f64>,
    /// Seconds from token to token.
    pub(crate) tpot_s: Option<f64>,
    pub(crate) up_window: Duration,
    pub(crate) down_window: Duration,
}

/// Replicas that a pool may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

// === impl ScalingSpec ===

impl ScalingSpec {
    pub(crate) fn of(spec: &PdDeploymentSpec) -> Self {
        let (pools, scaling) = (&spec.pools, &spec.autoscaling);
        let seconds = |ms: Option<i32>| ms.map(|ms| f64::from(ms) / 1000.0);
        let window = |seconds: i32| Duration::from_secs(u64::from(count(seconds)));
        Self {
            mode: scaling.mode,
            bounds: PerRole {
                prefill: Bounds::of(&pools.prefill),
                decode: Bounds::of(&pools.decode),
            },
            gpus: PerRole {
                prefill: gpus(&pools.prefill),
                decode: gpus(&pools.decode),
            },
            max_gpus: scaling.budget.max_gpus.map(count),
            shares_nodes: pools.prefill.pod_template == pools.decode.pod_template
                && kinds(&pools.prefill) == kinds(&pools.decode),
            ttft_s: seconds(spec.slo.ttft_ms),
            tpot_s: seconds(spec.slo.tpot_ms),
            up_window: window(scaling.scale_up_window_seconds),
            down_window: window(scaling.scale_down_window_seconds),
        }
    }

    /// GPUs that so many replicas take.
    pub(crate) fn cost(&self, replicas: PerRole<u32>) -> u64 {
        let cost = |replicas: u32, gpus: u32| u64::from(replicas) * u64::from(gpus);
        cost(replicas.prefill, self.gpus.prefill) + cost(replicas.decode, self.gpus.decode)
    }

    pub(crate) fn affords(&self, replicas: PerRole<u32>) -> bool {
        let max = self.max_gpus.map(u64::from);
        max.is_none_or(|max| self.cost(replicas) <= max)
    }
}

// === impl Bounds ===

impl Bounds {
    fn of(pool: &PoolSpec) -> Self {
        let min = count(pool.initial_replicas());
        Self {
            min,
            max: pool.max_replicas.map_or(min, count).max(min),
        }
    }

    pub(crate) fn clamp(&self, replicas: u32) -> u32 {
        replicas.clamp(self.min, self.max)
    }
}

/// What a replica asks nodes for.
fn kinds(pool: &PoolSpec) -> BTreeSet<&str> {
    let resources = pool.resources.iter();
    let maps = resources.flat_map(|resources| [&resources.limits, &resources.requests]);
    let names = maps.flatten().flat_map(|map| map.keys());
    names.map(String::as_str).collect()
}

fn gpus(pool: &PoolSpec) -> u32 {
    u32::try_from(pool.gpus()).unwrap_or(u32::MAX).max(1)
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
