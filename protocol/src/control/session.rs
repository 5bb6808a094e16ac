//! What every message carries: which registration it belongs to, and which attempt at a room.

use crate::RankId;
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Names one registration of a decode rank with a prefill rank: decode's boot id, its rank, a count, and random bits,
/// so that only the two of them know the name. Every message between the two carries it, so nothing meant for a process that is gone is taken
/// by its successor on the same port. SGLang's `session_id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(#[serde(deserialize_with = "bounded::session_id")] pub String);

/// Distinguishes one attempt at a room from another; decode draws it, and every message of the attempt
/// echoes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub u64);

// === impl SessionId ===

impl SessionId {
    pub fn new(boot_id: &str, rank: RankId, registration: u64, nonce: u128) -> Self {
        let RankId {
            dp_rank,
            cp_rank,
            tp_rank,
            pp_rank,
        } = rank;
        Self(format!(
            "{boot_id}/{dp_rank}.{cp_rank}.{tp_rank}.{pp_rank}/{registration}/{nonce:032x}"
        ))
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
