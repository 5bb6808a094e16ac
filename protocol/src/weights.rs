//! Admin API of agents: weights that take the place of others while the process goes on.
//!
//! `GET /weights` → [`WeightsStatus`] · `POST /update_weights_from_disk` [`WeightsUpdate`] → [`WeightsUpdated`], SGLang's path
//! and fields.

use serde::{Deserialize, Serialize};

/// Where an agent serves [`WeightsStatus`].
pub const STATUS_PATH: &str = "/weights";
/// Where it takes [`WeightsUpdate`].
pub const UPDATE_PATH: &str = "/update_weights_from_disk";

/// A checkpoint, and the name of its weights in answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// A Hugging Face folder or a GGUF file, as the agent sees it.
    pub model_path: String,
    pub weight_version: String,
}

/// What an agent is asked for. SGLang's fields that ask for what is not done are refused by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightsUpdate {
    pub model_path: String,
    /// The name of the weights in answers; that of the ones before if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_version: Option<String>,
    /// Ends running requests at once, retriably, in place of waiting for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_all_requests: Option<bool>,
    /// pdserve's own: how long running requests may go on; the agent's `--drain-timeout` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout_secs: Option<f64>,
    /// pdserve's own: only read and check the checkpoint, while requests go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_only: Option<bool>,
    /// `auto`, or the kind of the files: `safetensors` or `gguf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_format: Option<String>,
    /// KV of other weights means nothing to new ones: it is always flushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_cache: Option<bool>,
    /// The answer comes at once, and [`WeightsStatus`] says what becomes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_async: Option<bool>,
    /// Memory is always given back before the new weights take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch_empty_cache: Option<bool>,
    /// Requests always go on with the new weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_pause: Option<bool>,
    /// Graphs are always captured again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recapture_cuda_graph: Option<bool>,
}

/// SGLang's answer, with status 200 or 400.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsUpdated {
    pub success: bool,
    pub message: String,
    /// Requests that waited meanwhile.
    pub num_paused_requests: u64,
}

/// What an agent does about weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsStatus {
    /// Whose answers requests get.
    pub serving: Checkpoint,
    pub phase: WeightsPhase,
    /// Read and checked last: it can take the place of the one that serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<Checkpoint>,
    /// Asked for last, and not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedWeights>,
    /// Requests that wait for new weights.
    pub waiting: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightsPhase {
    #[default]
    Serving,
    /// A checkpoint is read while requests go on.
    Preparing,
    /// Running requests end, new ones wait.
    Draining,
    /// New weights are loaded, requests wait.
    Loading,
}

// === impl WeightsPhase ===

impl WeightsPhase {
    /// Whether other weights are about to serve.
    pub fn replaces(self) -> bool {
        match self {
            Self::Draining | Self::Loading => true,
            Self::Serving | Self::Preparing => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedWeights {
    pub checkpoint: Checkpoint,
    pub reason: String,
    /// It was read and checked, and could not be loaded: requests waited for nothing.
    #[serde(default)]
    pub was_loaded: bool,
    /// How long ago that was.
    pub age_secs: u64,
}
