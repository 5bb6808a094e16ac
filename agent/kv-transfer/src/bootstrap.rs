//! The bootstrap server beside prefill and its client: prefill ranks register where they are,
//! decode asks. Source: reference §1.2, seed 000 §3.3.

pub(crate) mod client;
pub mod server;
pub(crate) mod table;

pub use server::BootstrapServer;
