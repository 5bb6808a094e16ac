//! Control messages between the managers of prefill and decode ranks. A message is a multipart of
//! guard, version, kind, a MessagePack map (unknown fields ignored), and, for messages that list
//! pages, binary lists of u32 little-endian. `pd-kv-transfer` encodes and decodes them.

pub mod abort;
pub mod chunk;
pub mod guard;
pub mod rail;
pub mod register;
pub mod status;
pub mod transfer_info;

pub use abort::{Abort, AbortAck};
pub use chunk::{ChunkDone, ChunkReady};
pub use guard::{GUARD, Kind, VERSION};
pub use rail::{
    NicInfo, QueuePairEnd, RailAnswer, RailClosed, RailDown, RailOffer, RailsWanted, RegionKey,
};
pub use register::{KvArgsRegisterInfo, RegisterAck, ShmOffer};
pub use status::Status;
pub use transfer_info::TransferInfo;

use serde::{Deserialize, Serialize};

/// Names one registration of a decode rank with a prefill rank: decode's boot id, rank and a count.
/// Every message between the two carries it, so nothing meant for a process that is gone is taken
/// by its successor on the same port. SGLang's `session_id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub String);

/// Distinguishes one attempt at a room from another; decode draws it, and every message of the attempt
/// echoes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub u64);

/// Any message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlMessage {
    Register(Box<KvArgsRegisterInfo>),
    RegisterAck(Box<RegisterAck>),
    RailsWanted(RailsWanted),
    RailOffer(Box<RailOffer>),
    RailAnswer(RailAnswer),
    RailDown(RailDown),
    RailClosed(RailClosed),
    TransferInfo(TransferInfo),
    ChunkReady(ChunkReady),
    ChunkDone(ChunkDone),
    Status(Status),
    Abort(Abort),
    AbortAck(AbortAck),
}

impl SessionId {
    pub fn new(boot_id: &str, rank: crate::RankId, registration: u64) -> Self {
        let crate::RankId {
            dp_rank,
            cp_rank,
            tp_rank,
            pp_rank,
        } = rank;
        Self(format!(
            "{boot_id}/{dp_rank}.{cp_rank}.{tp_rank}.{pp_rank}/{registration}"
        ))
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
