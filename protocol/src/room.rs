//! `bootstrap_room`: the rendezvous id of one request between its prefill and its decode worker.

use serde::{Deserialize, Serialize};

/// SGLang's `bootstrap_room`: 63 bits, drawn by the router, never 0 (0 means "not arrived" in a
/// metadata row). Item `i` of a batch has room `room + i`. Source: docs/sglang-protocol.md#rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BootstrapRoom(u64);

/// Why a number is not a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    #[error("bootstrap_room 0 means that none was given; draw one in 1..=9223372036854775807")]
    Zero,
    #[error("bootstrap_room {0} does not fit 63 bits; draw one in 1..=9223372036854775807")]
    TooLarge(u64),
}

// === impl BootstrapRoom ===

impl BootstrapRoom {
    /// The largest room, `2^63 - 1`, so that every room is a positive signed integer too.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// # Errors
    /// Refuses 0 and numbers beyond 63 bits.
    pub const fn new(room: u64) -> Result<Self, RoomError> {
        match room {
            0 => Err(RoomError::Zero),
            r if r > Self::MAX.0 => Err(RoomError::TooLarge(r)),
            r => Ok(Self(r)),
        }
    }

    /// Maps 64 random bits to a room that leaves space for `items` consecutive rooms.
    pub fn from_random(bits: u64, items: u32) -> Self {
        let highest_first = Self::MAX.0 - u64::from(items.max(1) - 1);
        Self(1 + bits % highest_first)
    }

    /// Room of item `index` of a batch, or `None` past the largest room.
    pub fn item(self, index: u32) -> Option<Self> {
        Self::new(self.0 + u64::from(index)).ok()
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// The prefill data-parallel rank that serves this room. Source: docs/sglang-protocol.md#rooms.
    pub fn dp_rank(self, dp_size: u32) -> u32 {
        let rank = self.0 % u64::from(dp_size.max(1));
        u32::try_from(rank).expect("a remainder of a u32 fits a u32")
    }
}

impl TryFrom<u64> for BootstrapRoom {
    type Error = RoomError;
    fn try_from(room: u64) -> Result<Self, RoomError> {
        Self::new(room)
    }
}

impl From<BootstrapRoom> for u64 {
    fn from(room: BootstrapRoom) -> Self {
        room.0
    }
}

impl std::fmt::Display for BootstrapRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
