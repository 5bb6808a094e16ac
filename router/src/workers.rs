//! The workers a router may use: who they are (`registry`, found by flag, by the
//! admin API or by discovery), whether they are well (`health`,
//! `circuit`), which of them can serve together (`fleet`) and what each has in flight (`worker`).

pub mod circuit;
pub mod fleet;
pub mod health;
pub mod info;
pub mod registry;
pub mod worker;

pub use fleet::{Fleet, Group, Member};
pub use info::WorkerInfo;
pub use registry::{Registry, RegistryError};
pub use worker::{InvalidWorker, Lease, Worker};
