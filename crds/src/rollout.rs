//! Rollout: how a changed spec replaces running workers.

use crate::rules;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = rules::ROLLOUT_CAN_MOVE.cel())]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// Replicas that each pool may have beyond its number while it is replaced.
    #[serde(default = "max_surge")]
    #[schemars(range(min = 0, max = 100))]
    pub max_surge: i32,
    /// Replicas that each pool may lack while it is replaced.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub max_unavailable: i32,
    /// Stops a rollout where it is.
    #[serde(default)]
    pub paused: bool,
    /// Time without progress after which a rollout counts as failed.
    #[serde(default = "progress_deadline")]
    #[schemars(range(min = 1, max = 86_400))]
    pub progress_deadline_seconds: i32,
}

// === impl RolloutSpec ===

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            max_surge: max_surge(),
            max_unavailable: 0,
            paused: false,
            progress_deadline_seconds: progress_deadline(),
        }
    }
}

fn max_surge() -> i32 {
    1
}

fn progress_deadline() -> i32 {
    1800
}
