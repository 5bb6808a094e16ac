//! How KV bytes travel from prefill to decode.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The transport of a pair of ranks, and of each of its rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Decode copies from memory that prefill shares with it on one host.
    Shm,
    /// Prefill writes into decode's memory through their NICs.
    Rdma,
    /// Prefill sends frames over TCP connections.
    Tcp,
}

// === impl Transport ===

impl Transport {
    /// From the fastest to the slowest, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Rdma, Self::Tcp];

    /// Its place in `ALL`.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word of flags, JSON, metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
