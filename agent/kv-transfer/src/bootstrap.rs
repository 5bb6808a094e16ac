//! The bootstrap server beside prefill and its client: prefill ranks register where they are,
//! decode asks. Source: docs/sglang-protocol.md#bootstrap.

pub(crate) mod client;
mod metrics;
pub mod server;
pub(crate) mod table;

pub use metrics::BootstrapMetrics;
pub use server::BootstrapServer;
