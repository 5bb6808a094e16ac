//! The words of the system, with no I/O: what travels between router, agents, operator and
//! clients, and the names and ports by which they find each other.

pub mod labels;
pub mod poll;
pub mod ports;
pub mod room;
pub mod timeline;
pub mod workers;

pub use poll::KvPoll;
pub use room::BootstrapRoom;
