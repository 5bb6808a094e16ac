//! The CUDA backend: kernels of our own on one stream of one GPU, through a [`driver::Driver`].
//!
//! Everything above the driver is the same whether a GPU runs the kernels or their emulation on the
//! host does, so ops, launches and memory are tested where there is no GPU.

mod backend;
pub mod driver;
pub(crate) mod export;
mod fault;
#[cfg(feature = "cuda")]
pub mod gpu;
mod handle;
pub mod kernels;
mod memory;
mod ops;
mod pinned;
mod replay;
mod saturations;
mod scratch;
mod shared;
mod stream_event;
mod ticket;
mod weights;

pub use export::CudaMemory;
pub use handle::CudaBackend;
pub use memory::CudaBuffer;
pub use shared::CudaConfig;
pub use ticket::CudaTicket;
pub use weights::{CudaEmbedding, CudaExperts, CudaLinear};
