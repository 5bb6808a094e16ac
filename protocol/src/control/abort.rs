//! Decode gives a room up.

use super::session::{Generation, SessionId};
use crate::BootstrapRoom;
use serde::{Deserialize, Serialize};

/// Decode to prefill: write no more for this room. Sent again until answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    pub session_id: SessionId,
    pub room: BootstrapRoom,
    pub generation: Generation,
    pub reason: String,
}

/// Prefill to decode: nothing of this generation is written any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortAck {
    pub session_id: SessionId,
    pub room: BootstrapRoom,
    pub generation: Generation,
}
