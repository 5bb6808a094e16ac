//! The CPU backend: one queue thread that executes commands in order with a fixed pool of threads,
//! on kernels chosen once for the processor's instruction set.

mod isa;
mod kernels;
pub mod linear;
pub mod pack;

pub use isa::Isa;
