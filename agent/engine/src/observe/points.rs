//! What is observed, as it is recorded: one JSON object each.

use super::PayloadHash;
use crate::grammar::GrammarSource;
use crate::info::EngineInfo;
use crate::sample::params::SamplingParams;
use pd_protocol::Role;
use serde::{Deserialize, Serialize};

/// The engine whose requests are observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEngine {
    pub role: Role,
    pub model_path: String,
    pub dtype: String,
    pub kv_cache_dtype: String,
    pub page_size: u32,
    pub context_length: u32,
    /// Digest of all that must be equal for hashes to mean the same.
    pub kv_compat: String,
}

/// One look at a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Number of the request at its engine.
    pub request: u64,
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
        /// After the position, one per state of the model; none of models without.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        states: Vec<PayloadHash>,
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
    /// What said which tokens it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grammar: Option<RecordedGrammar>,
}

/// The source of a grammar as JSON text, which is read when the request is computed again: one that cannot be read takes
/// no other request with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordedGrammar(String);

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

// === impl RecordedGrammar ===

impl RecordedGrammar {
    pub fn of(source: &GrammarSource) -> Self {
        Self(serde_json::to_string(source).expect("it is of texts and JSON"))
    }

    /// # Errors
    /// When the text is no source that this program knows, or its schemas are nested too deep to be read again.
    pub fn source(&self) -> Result<GrammarSource, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

// === impl ObservedEngine ===

impl ObservedEngine {
    pub(crate) fn of(info: &EngineInfo) -> Self {
        Self {
            role: info.role,
            model_path: info.model_path.clone(),
            dtype: info.dtype.clone(),
            kv_cache_dtype: info.kv_cache_dtype.clone(),
            page_size: info.page_size,
            context_length: info.context_length,
            kv_compat: info.kv_compat.clone(),
        }
    }
}
