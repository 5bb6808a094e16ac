//! Chunks of a room that decode pulls: what may be read, and what has been.

use super::session::{Generation, SessionId};
use crate::BootstrapRoom;
use serde::{Deserialize, Serialize};

/// Prefill to decode: these pages are complete and stay so while the lease holds. Sent once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkReady {
    pub session_id: SessionId,
    pub room: BootstrapRoom,
    pub generation: Generation,
    /// Word of the lease table, and the value it has while the pages are the room's.
    pub lease_idx: u32,
    pub lease: u64,
    /// Where the chunk stands in the request's list of pages.
    pub first_page: u32,
    #[serde(default)]
    pub last: Option<LastPull>,
    /// Prefill's pages; a binary frame of its own.
    #[serde(skip)]
    pub page_indices: Vec<u32>,
    /// Prefill's items of each state (last chunk only); a binary frame each.
    #[serde(skip)]
    pub state_indices: Vec<Vec<u32>>,
}

/// What the last chunk adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPull {
    /// Prefill's row.
    pub metadata_buffer_index: u32,
}

/// Decode to prefill: the chunk has been copied, for prefill's timeline. Sent once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkDone {
    pub session_id: SessionId,
    pub room: BootstrapRoom,
    pub generation: Generation,
    pub first_page: u32,
    pub bytes: u64,
    pub duration_ns: u64,
    pub last: bool,
}
