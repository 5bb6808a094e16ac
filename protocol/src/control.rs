//! Control messages between the managers of prefill and decode ranks. A message is a multipart of
//! guard, version, kind, a MessagePack map (unknown fields ignored), and, for messages that list
//! pages, binary lists of u32 little-endian. `pd-kv-transfer` encodes and decodes them.

pub mod abort;
pub mod chunk;
pub mod guard;
pub mod rail;
pub mod register;
pub mod session;
pub mod status;
pub mod transfer_info;

pub use abort::{Abort, AbortAck};
pub use chunk::{ChunkDone, ChunkReady};
pub use guard::{GUARD, Kind, VERSION};
pub use rail::{
    NicInfo, QueuePairEnd, RailAnswer, RailClosed, RailDown, RailOffer, RailsWanted, RegionKey,
};
pub use register::{KvArgsRegisterInfo, RegisterAck, ShmOffer};
pub use session::{Generation, SessionId};
pub use status::Status;
pub use transfer_info::TransferInfo;

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

impl ControlMessage {
    /// The registration that it belongs to.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::Register(m) => &m.session_id,
            Self::RegisterAck(m) => &m.session_id,
            Self::RailsWanted(m) => &m.session_id,
            Self::RailOffer(m) => &m.session_id,
            Self::RailAnswer(m) => &m.session_id,
            Self::RailDown(m) => &m.session_id,
            Self::RailClosed(m) => &m.session_id,
            Self::TransferInfo(m) => &m.session_id,
            Self::ChunkReady(m) => &m.session_id,
            Self::ChunkDone(m) => &m.session_id,
            Self::Status(m) => &m.session_id,
            Self::Abort(m) => &m.session_id,
            Self::AbortAck(m) => &m.session_id,
        }
    }
}
