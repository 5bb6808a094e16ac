//! Why a manager does not start, and why a room is not opened.

use crate::memory::RegionError;
use crate::transport::rdma::fabric::FabricError;
use crate::transport::shm::socket::DirError;
use pd_protocol::BootstrapRoom;
use pd_protocol::layout::LayoutError;
use std::path::PathBuf;

/// Why a manager does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("a unified worker transfers nothing; start a manager for prefill or decode")]
    Unified,
    #[error("this rank's KV layout: {0}")]
    Layout(#[from] LayoutError),
    #[error("KV region {index} has {actual} bytes, but its layout needs {expected}")]
    RegionLength {
        index: usize,
        actual: u64,
        expected: u64,
    },
    #[error("the layout describes {expected} regions, but {actual} were given")]
    RegionCount { actual: usize, expected: usize },
    #[error("--disaggregation-shm-dir {} cannot be used: {reason}", .dir.display())]
    ShmDir { dir: PathBuf, reason: DirError },
    #[error("memory of the KV transfer itself: {0}")]
    Memory(RegionError),
    #[error("transfer backend rdma cannot be used: {0}")]
    Rdma(#[from] FabricError),
    #[error("cannot start the threads of the KV transfer: {0}")]
    Threads(std::io::Error),
    #[error("cannot listen on {host}: {source}")]
    Listen {
        host: std::net::IpAddr,
        source: std::io::Error,
    },
}

/// Why a room is not opened. The room that stands in the way is not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("bootstrap_room {0} is in use or was used a moment ago; draw a new one")]
    DuplicateRoom(BootstrapRoom),
    #[error("a {0} worker opens no {1}")]
    WrongRole(&'static str, &'static str),
}
