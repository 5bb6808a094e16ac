//! Registration of a decode rank with a prefill rank, once per pair of processes.

use super::session::SessionId;
use crate::Transport;
use crate::bounded;
use crate::layout::{KvLayout, ParallelLayout, RankId};
use serde::{Deserialize, Serialize};

/// Decode to prefill; SGLang's `KVArgsRegisterInfo`. Sent again until answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvArgsRegisterInfo {
    /// New with every registration.
    pub session_id: SessionId,
    /// Where decode's control socket listens.
    #[serde(deserialize_with = "bounded::host")]
    pub endpoint: String,
    pub dst_port: u16,
    /// Where decode accepts data connections (tcp).
    pub data_port: u16,
    pub rank: RankId,
    pub parallel: ParallelLayout,
    pub layout: KvLayout,
    #[serde(deserialize_with = "bounded::name")]
    pub kv_compat: String,
}

/// Prefill to decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterAck {
    /// Echoed.
    pub session_id: SessionId,
    /// Names the prefill process.
    pub boot_id: String,
    pub rank: RankId,
    pub layout: KvLayout,
    pub kv_compat: String,
    /// Where prefill accepts the liveness connection.
    pub liveness_port: u16,
    /// Absent where prefill does not offer its memory for reading.
    #[serde(default)]
    pub shm: Option<ShmOffer>,
    /// Prefill is willing to push over tcp.
    pub tcp: bool,
    /// Prefill has NICs to write over RDMA with, and is willing to.
    #[serde(default)]
    pub rdma: bool,
    /// Prefill sends nothing of what a `TransferInfo` counts in its `decode_prefix_len`.
    #[serde(default)]
    pub honours_prefix: bool,
    /// Why the registration is refused; then nothing else here counts.
    #[serde(default)]
    pub refused: Option<String>,
}

/// Where a peer on the same host gets the files behind prefill's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShmOffer {
    /// Boot id of the kernel: another one is another host.
    pub host_id: String,
    /// Unix socket that hands out file descriptors to processes of the same user.
    pub socket_name: String,
    /// The socket is a file in a directory that both processes mount; else it is an abstract one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_dir: bool,
}

// === impl RegisterAck ===

impl RegisterAck {
    /// Whether prefill offers a transport; it is up to decode to try it.
    pub fn offers(&self, transport: Transport) -> bool {
        match transport {
            Transport::Shm => self.shm.is_some(),
            Transport::Rdma => self.rdma,
            Transport::Tcp => self.tcp,
        }
    }
}
