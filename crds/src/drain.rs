//! Drain: how a worker leaves without losing a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// Time that requests in flight have to finish. After it, those without a first token are sent
    /// elsewhere and the others end with a retriable error.
    #[serde(default = "timeout")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
    /// What happens to the workers of a node that is cordoned.
    #[serde(default)]
    pub on_cordon: OnCordon,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCordon {
    /// Replace them elsewhere, then drain them.
    #[default]
    Move,
    /// Leave them alone.
    Ignore,
}

// === impl DrainSpec ===

impl Default for DrainSpec {
    fn default() -> Self {
        Self {
            timeout_seconds: timeout(),
            on_cordon: OnCordon::Move,
        }
    }
}

fn timeout() -> i32 {
    300
}
