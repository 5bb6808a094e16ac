//! The CPU backend: one queue thread that executes commands in order with a fixed pool of threads,
//! on kernels chosen once for the processor's instruction set.

mod attention;
mod backend;
mod embed;
mod gather;
mod isa;
mod kernels;
mod kv_layer;
mod lanes;
mod linear;
pub mod linear_product;
mod memory;
mod norm;
pub mod pack;
mod qkv;
mod queue;
mod rope;
mod sample;
mod threads;
mod ticket;

pub use backend::{CpuBackend, CpuConfig};
pub use embed::CpuEmbedding;
pub use isa::Isa;
pub use memory::CpuBuffer;
pub use ticket::CpuTicket;
