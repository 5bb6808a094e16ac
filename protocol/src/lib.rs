//! The words of the system, with no I/O: what travels between router, agents, operator and
//! clients, and the names and ports by which they find each other.

pub mod backoff;
pub mod bootstrap;
pub mod bounded;
pub mod compat;
pub mod control;
pub mod exposition;
pub mod labels;
pub mod layout;
pub mod metadata;
pub mod poll;
pub mod ports;
pub mod role;
pub mod room;
pub mod secret;
pub mod sockets;
pub mod timeline;
pub mod trace_event;
pub mod transport;
pub mod unserved;
pub mod weights;
pub mod workers;

pub use backoff::Backoff;
pub use layout::{KvLayout, ParallelLayout, RankId};
pub use metadata::MetadataRow;
pub use poll::KvPoll;
pub use role::Role;
pub use room::BootstrapRoom;
pub use secret::Secret;
pub use transport::Transport;

#[cfg(test)]
mod fuzz;
