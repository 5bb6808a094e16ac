//! KV transfer from prefill to decode: manager, sender, receiver, bootstrap, transports.
//!
//! It moves bytes and reports how far each room is; it schedules nothing. The engine calls it from
//! its own thread and never waits for it. Life of a room:
//! 1. Both: `KvManager::sender` / `KvManager::receiver` open the room (`Bootstrapping`).
//! 2. Decode asks prefill's bootstrap server for the ranks to fetch from, registers its memory
//!    with each once, reserves pages, and sends a `TransferInfo` per room (`KvReceiver::init`).
//! 3. Prefill has every `TransferInfo` (`WaitingForInput`), computes, and hands over chunks
//!    (`KvSender::send`); the last carries the metadata row.
//! 4. Bytes move (`Transferring`): prefill pushes over rdma or tcp, decode pulls over shm.
//! 5. Decode has every byte and the row of its room (`Success`) and reports it; prefill follows.
//! 6. Either side may fail at any time: the fence decides when pages may be used again.

pub mod bootstrap;
pub mod config;
pub mod consensus;
pub mod failure;
pub mod manager;
pub mod memory;
pub mod metadata_buffers;
pub mod receiver;
pub mod sender;

mod admission;
mod clock;
mod control;
mod decode_side;
mod error;
mod fault_injection;
mod fence;
mod items;
mod liveness;
mod log_limit;
mod metrics;
mod net;
mod peer_connection;
mod plan;
mod prefill_side;
mod progress;
mod ranks;
mod shared;
mod tasks;
mod transport;
mod transport_report;

pub use bootstrap::{BootstrapMetrics, BootstrapServer};
pub use config::{
    BootstrapAddr, KvArgs, KvManagerConfig, RdmaConfig, TransferConfig, TransportChoice, Waker,
};
pub use consensus::{PollBoard, PollReporter};
pub use decode_side::room::OfferedMemory;
pub use error::{OpenError, StartError};
pub use failure::{FailureLayer, FailureReason};
pub use manager::KvManager;
pub use memory::{DeviceMemory, Region, RegionError};
pub use metadata_buffers::{MetadataBuffers, MetadataIndexAllocator};
pub use metrics::TransferMetrics;
pub use pd_identity::Peers;
pub use receiver::{KvReceiver, ReceiverRequest, TransferReport};
pub use sender::{ChunkReport, KvSender, LastChunk, SenderRequest};
pub use tasks::Failure;
pub use transport::rdma::fabric::{FabricError, NicError};
pub use transport::shm::socket::DirError;
pub use transport_report::{PeerTransport, TransportReport};

#[cfg(test)]
mod tests;
