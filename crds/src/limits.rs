//! How much a router takes on at once, and how long it works on a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LimitsSpec {
    /// Requests in flight at most, in each router; more wait in its queue. Default: as many as the
    /// workers that serve have places for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_concurrent_requests: Option<i32>,
    /// Requests that may wait in each router; one more is refused with 429.
    #[serde(default = "queue_size")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub queue_size: i32,
    /// How long a request may wait for a place; then it is refused with 429.
    #[serde(default = "queue_timeout_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub queue_timeout_seconds: i32,
    /// How long a request may wait while one of the pools has no worker that serves; then it is refused
    /// with 503. 0 refuses at once.
    #[serde(default = "no_worker_timeout_seconds")]
    #[schemars(range(min = 0, max = 3600))]
    pub no_worker_timeout_seconds: i32,
    /// From a request's arrival to the last byte of its answer.
    #[serde(default = "request_timeout_seconds")]
    #[schemars(range(min = 1, max = 86400))]
    pub request_timeout_seconds: i32,
    /// Largest request body; a larger one is refused with 413.
    #[serde(default = "max_payload_bytes")]
    #[schemars(range(min = 1024, max = 1_073_741_824))]
    pub max_payload_bytes: i32,
}

// === impl LimitsSpec ===

impl Default for LimitsSpec {
    fn default() -> Self {
        Self {
            max_concurrent_requests: None,
            queue_size: queue_size(),
            queue_timeout_seconds: queue_timeout_seconds(),
            no_worker_timeout_seconds: no_worker_timeout_seconds(),
            request_timeout_seconds: request_timeout_seconds(),
            max_payload_bytes: max_payload_bytes(),
        }
    }
}

impl LimitsSpec {
    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A prompt of 8,000 tokens is about 32 KB, so a full queue of them holds 32 MB.
fn queue_size() -> i32 {
    1000
}

fn queue_timeout_seconds() -> i32 {
    60
}

/// A worker of a small model is replaced within seconds; a client that would wait longer gets an
/// error.
fn no_worker_timeout_seconds() -> i32 {
    10
}

fn request_timeout_seconds() -> i32 {
    1800
}

fn max_payload_bytes() -> i32 {
    32 << 20
}
