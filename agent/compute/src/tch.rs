//! The libtorch backend: each op is a few of torch's, run as it is called. An oracle for the other
//! backends, on a CPU or a GPU; the feature `tch` links libtorch 2.11.
//!
//! Everything computes in f32 and is rounded once, when it is stored. Speed is no aim, memory cannot
//! be exported, and a row's bits may depend on its batch-mates: torch picks kernels by shape.

mod backend;
mod config;
mod handle;
mod kv_layer;
mod memory;
mod ops;
mod states;
mod ticket;
mod weights;

pub use ::tch::Device;
pub use config::TchConfig;
pub use handle::{TchBackend, usual_device};
pub use memory::TchBuffer;
pub use ticket::TchTicket;
pub use weights::TchMatrix;
