//! The CPU backend: one queue thread that executes commands in order with a fixed pool of threads,
//! on kernels chosen once for the processor's instruction set.

mod backend;
mod embedding;
mod experts;
mod handle;
mod isa;
mod kv_layer;
pub mod linear_product;
pub(crate) mod memory;
mod ops;
pub mod pack;
mod places;
mod queue;
mod seq_states;
mod simd;
mod threads;
mod ticket;

pub use embedding::CpuEmbedding;
pub use experts::CpuExperts;
pub use handle::{CpuBackend, CpuConfig};
pub use isa::Isa;
pub use memory::{CpuBuffer, HostMemory};
pub use ticket::CpuTicket;
