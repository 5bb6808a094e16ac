//! Proof over real processes: starts agents and routers on loopback addresses of their own, talks to
//! them as a client would, and breaks them on purpose.

pub mod address;
pub mod attacks;
pub mod binaries;
pub mod certs;
pub mod client;
pub mod docs;
pub mod engines;
pub mod fleet;
#[cfg(feature = "kube")]
pub mod kube;
pub mod load;
pub mod local;
pub mod metrics;
pub mod peer;
pub mod process;
pub mod prompts;
pub mod quiet;
#[cfg(feature = "rdma")]
pub mod rdma;
