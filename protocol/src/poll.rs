//! `KVPoll`: the state of one request's KV transfer, as its scheduler polls it.

use serde::{Deserialize, Serialize};

/// SGLang's `KVPoll`. The order is meaning: ranks agree by minimum, so one failed rank fails the
/// request, and a state only ever moves to a larger one or to `Failed`. Source: docs/sglang-protocol.md#kvpoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[serde(try_from = "u8", into = "u8")]
pub enum KvPoll {
    /// The room was given up, here or by a peer.
    Failed = 0,
    /// Decode: it looks for prefill's ranks and registers with them. Prefill: it waits for the
    /// `TransferInfo` of every decode rank.
    Bootstrapping = 1,
    /// Decode: prefill is known, so pages may be reserved and offered. Prefill: every `TransferInfo`
    /// is here, so the prompt may be computed.
    WaitingForInput = 2,
    /// Decode: a part is arriving. Prefill: a chunk was handed over.
    Transferring = 3,
    /// Decode: every part is here, and the metadata row is this room's. Prefill: every decode rank
    /// has reported that.
    Success = 4,
}

/// A number that names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("KvPoll {0} is not one of 0 (Failed) to 4 (Success)")]
pub struct UnknownKvPoll(pub u8);

// === impl KvPoll ===

impl KvPoll {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Failed | Self::Success)
    }

    /// The state after a report of `next`: a terminal state never changes, others never go back.
    #[must_use]
    pub fn advance(self, next: Self) -> Self {
        match (self, next) {
            (Self::Failed | Self::Success, _) => self,
            (_, Self::Failed) => Self::Failed,
            (current, next) => current.max(next),
        }
    }

    /// What ranks agree on: the least of their states; `Success` when there is none to ask.
    pub fn consensus(polls: impl IntoIterator<Item = Self>) -> Self {
        polls.into_iter().min().unwrap_or(Self::Success)
    }
}

impl TryFrom<u8> for KvPoll {
    type Error = UnknownKvPoll;
    fn try_from(value: u8) -> Result<Self, UnknownKvPoll> {
        match value {
            0 => Ok(Self::Failed),
            1 => Ok(Self::Bootstrapping),
            2 => Ok(Self::WaitingForInput),
            3 => Ok(Self::Transferring),
            4 => Ok(Self::Success),
            other => Err(UnknownKvPoll(other)),
        }
    }
}

impl From<KvPoll> for u8 {
    fn from(poll: KvPoll) -> Self {
        poll as u8
    }
}

#[cfg(test)]
mod tests;
