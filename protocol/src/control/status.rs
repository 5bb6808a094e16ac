//! Reports a room's progress to the other side.

use super::session::{Generation, SessionId};
use crate::{BootstrapRoom, KvPoll};
use serde::{Deserialize, Serialize};

/// Prefill to decode: `WaitingForInput` answers a `TransferInfo`; `Transferring` says that NICs begin to write
/// (rdma: decode does not see single writes); `Failed` says why, also in answer to a `TransferInfo`.
/// Decode to prefill: `Success` when all has arrived; a room that fails there is aborted instead. Sent once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub session_id: SessionId,
    pub room: BootstrapRoom,
    pub generation: Generation,
    pub poll: KvPoll,
    /// Layer and sentence of a failure.
    #[serde(default)]
    pub reason: Option<String>,
}
