//! Autoscaling: who sets the replica counts, how fast, and within which budget.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalingSpec {
    /// `Auto` scales, `Advise` only writes what it would do into the status, `External` leaves the
    /// counts to an HPA or a person, `Off` keeps the replicas of the spec.
    #[serde(default)]
    pub mode: ScalingMode,
    /// How long demand must have been higher before a pool grows.
    #[serde(default = "up_window")]
    #[schemars(range(min = 0, max = 3600))]
    pub scale_up_window_seconds: i32,
    /// How long demand must have been lower before a pool shrinks.
    #[serde(default = "down_window")]
    #[schemars(range(min = 0, max = 3600))]
    pub scale_down_window_seconds: i32,
    /// What both pools may use together.
    #[serde(default)]
    pub budget: BudgetSpec,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScalingMode {
    Auto,
    Advise,
    External,
    #[default]
    Off,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BudgetSpec {
    /// Largest number of GPUs (ranks, tp × pp × dp) of both pools together. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_gpus: Option<i32>,
}

// === impl AutoscalingSpec ===

impl Default for AutoscalingSpec {
    fn default() -> Self {
        Self {
            mode: ScalingMode::Off,
            scale_up_window_seconds: up_window(),
            scale_down_window_seconds: down_window(),
            budget: BudgetSpec::default(),
        }
    }
}

fn up_window() -> i32 {
    10
}

fn down_window() -> i32 {
    300
}
