//! What is observed, as it is recorded: one JSON object each.

use super::PayloadHash;
use crate::sample::params::SamplingParams;
use serde::{Deserialize, Serialize};

/// One look at a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    pub rid: String,
    /// Both legs of a disaggregated request have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    #[serde(flatten)]
    pub point: Point,
}

/// Where in its life the request is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "point", rename_all = "snake_case")]
pub enum Point {
    Admitted(Admitted),
    /// An engine that does both has computed the whole prompt.
    Computed(Payload),
    /// Prefill hands pages to the transfer; with the last ones the state.
    BeforeSend(Payload),
    /// A chunk has left.
    Sent {
        bytes: u64,
        duration_ns: u64,
    },
    /// Decode has the prompt's KV and state.
    AfterRestore(Payload),
    /// A step has computed the position and drawn the token behind it.
    Step {
        position: usize,
        /// Of the position's KV alone.
        kv: PayloadHash,
        token: u32,
    },
}

/// What an answer follows from, beside the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admitted {
    pub input_ids: Vec<u32>,
    pub sampling: SamplingParams,
    pub choice: u32,
    /// In effect, also where the request has none.
    pub seed: u64,
}

/// Pages of a request, and its recurrent state after them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// Place of the first page in the request.
    pub first_page: usize,
    /// Tokens of the request that have KV; the last page may hold fewer than its slots.
    pub tokens: usize,
    pub pages: Vec<PayloadHash>,
    /// One per state of the model; none of models without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<PayloadHash>,
}
