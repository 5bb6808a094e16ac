//! Stages of one request in one process, with wall-clock times, so that the three processes of a
//! request can be drawn on one axis. Served as `GET /timeline/{room}` on the admin ports.

use crate::BootstrapRoom;
use serde::{Deserialize, Serialize};

/// SGLang's `RequestStage`, as far as a request's path over the processes shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Router: head of the client's request read.
    RouterAccepted,
    /// Router: a pair was chosen; both legs are about to be sent.
    RouterDispatched,
    /// Router: first byte of decode's body relayed.
    RouterFirstByte,
    /// Router: last byte of decode's body relayed.
    RouterDone,
    /// Prefill: request in the bootstrap queue.
    PrefillQueued,
    /// Prefill: every decode rank has sent its `TransferInfo`.
    PrefillBootstrapped,
    /// Prefill: one chunk computed (`tokens`, `duration_ns`).
    ChunkComputed,
    /// Prefill: one chunk's KV, with the last one the state, written to, or pulled by, decode (`bytes`, `state_bytes`,
    /// `duration_ns`).
    ChunkSent,
    /// Prefill: the last write, with the metadata row, has completed.
    LastWrite,
    /// Decode: request in the prealloc queue.
    DecodeQueued,
    /// Decode: pages and metadata row reserved, `TransferInfo` sent.
    DecodePreallocated,
    /// Decode: KV and state complete and checked (`bytes`, `state_bytes`).
    TransferDone,
    /// Decode: end of the first decode step.
    FirstStep,
    /// Decode: last token produced (`tokens` = all of the answer).
    LastToken,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageEvent {
    pub stage: Stage,
    /// End of the stage, nanoseconds since the Unix epoch.
    pub at_unix_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Of `bytes`, those of recurrent state; absent where none moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTimeline {
    pub room: BootstrapRoom,
    /// `router`, `prefill` or `decode`.
    pub process: String,
    pub events: Vec<StageEvent>,
}
