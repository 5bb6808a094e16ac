//! What a worker says of itself in `/server_info`, or else in `/v1/models`: its models, what its KV bytes mean and how it hands
//! them over, which process it is and where its bootstrap server listens.

use pd_protocol::Role;
use pd_protocol::weights::Checkpoint;
use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerInfo {
    /// Names under which clients ask for its model, sorted.
    pub(crate) models: Vec<String>,
    pub(crate) kv_compat: Option<String>,
    pub(crate) handover: Handover,
    pub(crate) boot_id: Option<String>,
    /// Whose weights it serves, where they have a name.
    pub(crate) weights: Option<Checkpoint>,
    pub(crate) role: Option<Role>,
    pub(crate) bootstrap_port: Option<u16>,
    /// Requests that it runs at once.
    pub(crate) max_running_requests: Option<u32>,
    /// Tokens of a prompt and its answer.
    pub(crate) context_length: Option<u32>,
    /// Of a request.
    pub(crate) max_body_bytes: Option<u64>,
}

/// How the KV of a prompt comes from prefill to decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Handover {
    /// Both are asked at once and meet in a room of prefill's bootstrap server: SGLang's protocol, and ours.
    #[default]
    Bootstrap,
    /// Prefill is asked first, and its answer holds the `kv_transfer_params` by which decode fetches the KV: vLLM's.
    TransferParams,
}

/// `/server_info` as far as it is read, of which SGLang's own servers send a part; or the list of OpenAI's `/v1/models`.
#[derive(Deserialize)]
struct ServerInfo {
    #[serde(default)]
    served_model_name: Option<OneOrMany>,
    #[serde(default)]
    model_path: Option<String>,
    #[serde(default)]
    kv_compat: Option<String>,
    #[serde(default)]
    weight_version: Option<String>,
    #[serde(default)]
    boot_id: Option<String>,
    #[serde(default)]
    disaggregation_mode: Option<String>,
    #[serde(default, alias = "disaggregation_bootstrap_port")]
    bootstrap_port: Option<u16>,
    #[serde(default)]
    max_running_requests: Option<i64>,
    #[serde(default)]
    context_length: Option<i64>,
    #[serde(default)]
    max_body_bytes: Option<u64>,
    #[serde(default)]
    internal_states: Option<Vec<InternalState>>,
    #[serde(default)]
    data: Option<Vec<ModelCard>>,
}

/// A model in `/v1/models`, with its length as SGLang and vLLM add it.
#[derive(Deserialize)]
struct ModelCard {
    id: String,
    #[serde(default)]
    max_model_len: Option<i64>,
    #[serde(default)]
    owned_by: Option<String>,
}

/// In the cards of vLLM's models.
const OWNED_BY_VLLM: &str = "vllm";

/// What SGLang says of each data-parallel rank.
#[derive(Deserialize)]
struct InternalState {
    #[serde(default)]
    effective_max_running_requests_per_dp: Option<i64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

// === impl WorkerInfo ===

impl WorkerInfo {
    /// # Errors
    /// The JSON error, with its position.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let info: ServerInfo = serde_json::from_slice(json)?;
        let weights = info.model_path.clone().zip(info.weight_version);
        let mut models = match info.served_model_name {
            Some(OneOrMany::One(name)) => vec![name],
            Some(OneOrMany::Many(names)) => names,
            None => info.model_path.into_iter().collect(),
        };
        let cards = || info.data.iter().flatten();
        models.extend(cards().map(|card| card.id.clone()));
        models.sort();
        models.dedup();
        let is_vllm = |card: &ModelCard| card.owned_by.as_deref() == Some(OWNED_BY_VLLM);
        let handover = if cards().any(is_vllm) {
            Handover::TransferParams
        } else {
            Handover::Bootstrap
        };
        let length = cards().filter_map(|card| card.max_model_len).min();
        let of_ranks = info.internal_states.iter().flatten();
        let of_ranks = of_ranks.filter_map(|state| state.effective_max_running_requests_per_dp);
        let running = of_ranks
            .reduce(i64::saturating_add)
            .or(info.max_running_requests);
        let above_0 =
            |number: Option<i64>| u32::try_from(number?).ok().filter(|number| *number > 0);
        Ok(Self {
            max_running_requests: above_0(running),
            context_length: above_0(info.context_length.or(length)),
            max_body_bytes: info.max_body_bytes.filter(|bytes| *bytes > 0),
            models,
            kv_compat: info.kv_compat,
            handover,
            boot_id: info.boot_id,
            weights: weights.map(|(model_path, weight_version)| Checkpoint {
                model_path,
                weight_version,
            }),
            role: info.disaggregation_mode.and_then(|mode| mode.parse().ok()),
            bootstrap_port: info.bootstrap_port,
        })
    }
}

#[cfg(test)]
mod tests;
