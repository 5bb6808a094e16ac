//! Rails, over which prefill writes into decode's memory: each is a pair of NICs, one of a prefill rank and one
//! of a decode rank, with the queue pairs between them.
//!
//! 1. Decode asks for rails and lists its NICs (`RailsWanted`).
//! 2. Prefill offers each rail with its ends of the queue pairs (`RailOffer`).
//! 3. Decode connects its ends and answers with them and the keys of its memory (`RailAnswer`).
//! 4. Prefill connects, too, and writes a probe of the largest packet over each queue pair: the rail is up
//!    when all have come.
//! 5. A rail that fails is taken down (`RailDown`). Decode destroys its ends, after which nothing of it
//!    can land any more, and says so, and which rooms are not complete (`RailClosed`). Only then does
//!    prefill write their pieces again over other rails. It may offer the rail again, as another epoch.

use super::session::{Generation, SessionId};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;

/// Decode to prefill. Sent again until a rail is up or none can come up; without NICs it takes the wish back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailsWanted {
    pub session_id: SessionId,
    /// In the order in which decode prefers them.
    pub nics: Vec<NicInfo>,
}

/// A NIC as its owner describes it to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicInfo {
    /// Its device's name there, for logs.
    pub device: String,
    /// RoCE, as opposed to InfiniBand.
    pub ethernet: bool,
    pub gid: Ipv6Addr,
    #[serde(default)]
    pub mbit_per_s: Option<u64>,
}

/// Prefill to decode. Sent again until answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailOffer {
    pub session_id: SessionId,
    pub rail: u32,
    /// Number of rails of the session.
    pub rails: u32,
    /// Grows each time the rail is offered again.
    pub epoch: u32,
    /// Which of decode's NICs, by its index in `RailsWanted`.
    pub nic: u32,
    /// Prefill's own.
    pub from: NicInfo,
    pub ends: Vec<QueuePairEnd>,
}

/// Decode to prefill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailAnswer {
    pub session_id: SessionId,
    pub rail: u32,
    pub epoch: u32,
    /// One for each end of the offer.
    pub ends: Vec<QueuePairEnd>,
    /// KV cuts, states, metadata rows and a place for probes, as that NIC knows them.
    pub regions: Vec<RegionKey>,
    /// Why there is no such rail; then nothing else here counts.
    #[serde(default)]
    pub refused: Option<String>,
}

/// Prefill to decode: nothing more comes over this rail. Sent again until answered, but for one that says that no two
/// NICs can meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailDown {
    pub session_id: SessionId,
    pub rail: u32,
    pub epoch: u32,
    pub reason: String,
}

/// Decode to prefill: nothing of this rail, and of its epochs before, can land any more, and what had
/// ended on it counts no more. Also unasked, when decode's NIC does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RailClosed {
    pub session_id: SessionId,
    pub rail: u32,
    pub epoch: u32,
    /// Rooms of the session that wait for writes. Of others nothing may be written again: they may be
    /// complete, and their memory another's.
    pub waiting: Vec<Generation>,
}

/// One end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairEnd {
    pub qp_num: u32,
    /// Number of its first packet.
    pub psn: u32,
    /// 0 on Ethernet.
    pub lid: u16,
    pub gid: Ipv6Addr,
    /// Payload bytes of a packet.
    pub mtu: u16,
}

/// A region of decode's memory as one of its NICs knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionKey {
    pub addr: u64,
    pub len: u64,
    pub rkey: u32,
}
