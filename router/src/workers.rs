//! The workers a router may use: who they are (`registry`, found by flag, by the
//! admin API or by discovery), whether they are well (`health`,
//! `circuit`), which of them can serve together (`fleet`) what each has in flight (`worker`), and
//! whether one that answers no probe still answers a request (`silence`).

pub(crate) mod circuit;
pub(crate) mod fleet;
pub(crate) mod health;
pub(crate) mod info;
pub(crate) mod registry;
pub(crate) mod silence;
pub(crate) mod worker;

pub(crate) use fleet::{Fleet, Group, Member};
pub(crate) use info::Handover;
pub(crate) use registry::{Registry, RegistryError};
pub(crate) use silence::Silence;
pub(crate) use worker::{InvalidWorker, Lease, Worker};
