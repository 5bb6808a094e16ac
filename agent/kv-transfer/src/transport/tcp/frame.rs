//! Header and trailer of a data frame, little-endian. The payload's length follows from the pages,
//! but is stated too, so that an unwanted frame can be skipped.

use pd_protocol::BootstrapRoom;
use pd_protocol::control::Generation;

/// The fields take 40; the other 8 are written as 0 and not read.
pub(crate) const HEADER_BYTES: usize = 48;
/// Payload that a writer puts in one frame: enough to keep a socket busy, short enough that streams
/// share a chunk evenly.
pub(crate) const PAYLOAD_BYTES: u64 = 4 << 20;
/// Payload that a reader accepts: a page larger than `PAYLOAD_BYTES` is a frame of its own.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = 1 << 34;
/// Payload that the thread which sends it writes itself: 20 us of copying. The engine is not kept longer, and waking
/// another thread takes as long.
pub(crate) const DIRECT_BYTES_MAX: u64 = 128 << 10;
/// Trailer: the payload is the room's, or the room ended on the way and it is filler.
pub(crate) const VALID: u8 = 1;
pub(crate) const VOID: u8 = 0;

const MAGIC: u32 = 0x5044_4b56;
const FLAG_LAST: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) room: BootstrapRoom,
    pub(crate) generation: Generation,
    /// Pages `first_page..first_page + page_count` of the room's list.
    pub(crate) first_page: u32,
    pub(crate) page_count: u32,
    /// State slots and metadata row follow the pages.
    pub(crate) last: bool,
    pub(crate) payload_bytes: u64,
}

/// Why a header is refused; the connection is of no use after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("no data frame starts here")]
    Magic,
    #[error("a data frame of room {0}, which is none")]
    Room(u64),
    #[error("a data frame of {0} bytes is beyond the bound of {PAYLOAD_BYTES_MAX}")]
    TooLong(u64),
}

impl FrameHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(u32::from(self.last) * FLAG_LAST).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.room.get().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.first_page.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.page_count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let u32_at = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes of a header"))
        };
        let u64_at = |at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes of a header"))
        };
        if u32_at(0) != MAGIC {
            return Err(HeaderError::Magic);
        }
        let payload_bytes = u64_at(32);
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(HeaderError::TooLong(payload_bytes));
        }
        Ok(Self {
            room: BootstrapRoom::new(u64_at(8)).map_err(|_| HeaderError::Room(u64_at(8)))?,
            generation: Generation(u64_at(16)),
            first_page: u32_at(24),
            page_count: u32_at(28),
            last: u32_at(4) & FLAG_LAST != 0,
            payload_bytes,
        })
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
