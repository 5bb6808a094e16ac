//! Facts about transfers between two managers in one process, with known bytes.

mod faults;
pub(crate) mod figures;
pub(crate) mod fixture;
mod observation;
mod rails;
mod strangers;
mod transfers;
