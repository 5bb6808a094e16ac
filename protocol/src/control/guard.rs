//! The first frames of every control message.

/// First frame: what is not ours is dropped unread. Source: docs/sglang-protocol.md#control-messages.
pub const GUARD: &[u8] = b"PdserveKvGuard";
/// Second frame: raised when a message changes so that an old peer would misread it.
pub const VERSION: &[u8] = b"1";
/// Most frames of a message (guard, version, kind, body, pages, a list per state) and most bytes of one; a
/// list of 4 M pages fits.
pub const FRAMES_MAX: usize = 5 + crate::layout::STATES_MAX;
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// Third frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Register,
    RegisterAck,
    RailsWanted,
    RailOffer,
    RailAnswer,
    RailDown,
    RailClosed,
    TransferInfo,
    ChunkReady,
    ChunkDone,
    Status,
    Abort,
    AbortAck,
}

impl Kind {
    pub const ALL: [Self; 13] = [
        Self::Register,
        Self::RegisterAck,
        Self::RailsWanted,
        Self::RailOffer,
        Self::RailAnswer,
        Self::RailDown,
        Self::RailClosed,
        Self::TransferInfo,
        Self::ChunkReady,
        Self::ChunkDone,
        Self::Status,
        Self::Abort,
        Self::AbortAck,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Register => "REGISTER",
            Self::RegisterAck => "REGISTER_ACK",
            Self::RailsWanted => "RAILS_WANTED",
            Self::RailOffer => "RAIL_OFFER",
            Self::RailAnswer => "RAIL_ANSWER",
            Self::RailDown => "RAIL_DOWN",
            Self::RailClosed => "RAIL_CLOSED",
            Self::TransferInfo => "TRANSFER_INFO",
            Self::ChunkReady => "CHUNK_READY",
            Self::ChunkDone => "CHUNK_DONE",
            Self::Status => "STATUS",
            Self::Abort => "ABORT",
            Self::AbortAck => "ABORT_ACK",
        }
    }

    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().as_bytes() == name)
    }
}
