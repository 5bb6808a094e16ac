//! One report on the connection from a rank to its scheduler: room (u64), poll (u8), length of the reason (u16),
//! reason; little-endian. Room 0, which is never drawn, is a beat.

use pd_protocol::{BootstrapRoom, KvPoll};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Poll of a room that its rank has let go of.
const CLOSED: u8 = 255;
/// Bytes of a reason that are sent.
const REASON_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Beat,
    Poll {
        room: BootstrapRoom,
        poll: KvPoll,
        /// Empty unless it failed.
        reason: String,
    },
    Closed(BootstrapRoom),
}

/// Why a connection between ranks is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error("its connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("it closed its connection")]
    Closed,
    #[error("it was silent: frozen or cut off")]
    Silent,
    #[error("it reports poll {0}, which is none")]
    Poll(u8),
    #[error("it reports a reason of {0} bytes")]
    Reason(usize),
    #[error("more reports wait for it than can be")]
    Full,
    #[error("it has more rooms than can be")]
    TooManyRooms,
}

// === impl Report ===

impl Report {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (room, poll, reason) = match self {
            Self::Beat => (0, 0, ""),
            Self::Poll { room, poll, reason } => (room.get(), u8::from(*poll), reason.as_str()),
            Self::Closed(room) => (room.get(), CLOSED, ""),
        };
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        let len = u16::try_from(reason.len()).expect("REASON_BYTES_MAX fits");
        let mut bytes = room.to_le_bytes().to_vec();
        bytes.push(poll);
        bytes.extend(len.to_le_bytes());
        bytes.extend(reason.as_bytes());
        bytes
    }

    /// The next report; `None` if the connection ended between two.
    pub(super) async fn read(
        reader: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Self>, ReportError> {
        let mut room = [0; 8];
        match reader.read_exact(&mut room).await {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        };
        let poll = reader.read_u8().await?;
        let len = usize::from(reader.read_u16_le().await?);
        if len > REASON_BYTES_MAX {
            return Err(ReportError::Reason(len));
        }
        let mut reason = vec![0; len];
        reader.read_exact(&mut reason).await?;
        let Ok(room) = BootstrapRoom::new(u64::from_le_bytes(room)) else {
            return Ok(Some(Self::Beat));
        };
        if poll == CLOSED {
            return Ok(Some(Self::Closed(room)));
        }
        Ok(Some(Self::Poll {
            room,
            poll: KvPoll::try_from(poll).map_err(|_| ReportError::Poll(poll))?,
            reason: String::from_utf8_lossy(&reason).into_owned(),
        }))
    }
}
