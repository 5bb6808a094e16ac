//! Facts about transfers between two managers in one process, with known bytes.

mod bootstrap;
mod devices;
mod faults;
pub(crate) mod figures;
pub(crate) mod fixture;
pub(crate) mod heap_device;
mod neighbours;
mod observation;
mod peers;
mod prefixes;
mod rails;
mod small_rooms;
mod strangers;
mod topologies;
mod transfers;
