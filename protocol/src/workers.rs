//! Admin API of routers and agents: which workers a router may use, and how one is drained.
//!
//! Router (admin port): `GET /workers` → [`WorkerList`] · `POST /workers` [`WorkerSpec`] →
//! [`WorkerStatus`] · `POST /workers/{id}/cordon` and `/uncordon` → [`WorkerStatus`] ·
//! `DELETE /workers/{id}` → [`WorkerStatus`] of the removed worker · `POST /pause` [`PauseRequest`] and
//! `POST /resume` → [`DispatchStatus`]. An answer is the acknowledgement: after a cordon's answer the
//! router sends that worker no new request, after a pause's answer it sends none to any.
//! Agent (admin port): `POST /cordon`, `POST /uncordon`, `POST /drain`, `GET /drain` →
//! [`DrainStatus`].

use crate::weights::Checkpoint;
use crate::{BootstrapRoom, Role};
use serde::{Deserialize, Serialize};

/// A worker as it is registered with a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Unique and stable name: the pod's, or the URL of a worker given by flag.
    pub id: String,
    pub role: Role,
    /// Base URL of the worker's HTTP API, such as `http://127.3.0.1:30000`.
    pub url: String,
    /// Host that decode dials for the bootstrap server; the URL's host if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_host: Option<String>,
    /// Port of the bootstrap server; `ports::BOOTSTRAP` if absent on a prefill worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_port: Option<u16>,
    /// Stands for the worker's `kv_compat` if it has none of its own, such as SGLang's: only equal ones are paired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_kv_compat: Option<String>,
}

/// Whether a router sends requests to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Not yet, or no longer, healthy.
    Unready,
    /// Healthy and used.
    Serving,
    /// Gets no new request; those in flight go on.
    Cordoned,
}

/// A worker as the router sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    #[serde(flatten)]
    pub spec: WorkerSpec,
    pub state: WorkerState,
    /// Circuit breaker open: the worker failed repeatedly and rests.
    pub circuit_open: bool,
    /// Requests that this router has in flight on the worker.
    pub in_flight: u64,
    /// The worker's own digest of KV meaning, or the given one; only equal ones are paired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_compat: Option<String>,
    /// Names the process; changes with every start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Whose weights it said that it serves, at the last probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Checkpoint>,
    /// Why the worker is unready or its circuit open, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerList {
    pub workers: Vec<WorkerStatus>,
    #[serde(default)]
    pub dispatch: DispatchStatus,
}

/// Asks a router to send no request to any worker; those in flight go on, new ones wait in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// The pause ends by itself after so long, unless it is asked for again.
    pub lease_secs: u32,
}

/// What a router does with requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchStatus {
    /// How long it is paused already, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_ms: Option<u64>,
    /// Requests with a worker, or between two attempts.
    pub in_flight: u64,
    /// Requests in the queue.
    pub waiting: u64,
}

/// Life of an agent from the admin API's point of view; it only moves down this list, but for
/// `uncordon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainState {
    Serving,
    /// New rooms are refused, retriably; requests in flight go on.
    Cordoned,
    /// Cordoned for good; at SIGTERM the process exits when nothing is left in flight.
    Draining,
    /// Nothing left in flight.
    Drained,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    pub state: DrainState,
    /// Requests in the engine, from admission to last token (prefill: to the end of transfer).
    pub in_flight: u64,
}

/// Bootstrap fields that the router splices into a request body. Source: docs/sglang-protocol.md#rooms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapFields {
    pub bootstrap_host: String,
    pub bootstrap_port: u16,
    pub bootstrap_room: BootstrapRoom,
}
