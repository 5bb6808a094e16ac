//! TCP as the processes of a deployment use it: the kernel's, or a simulated network's.
//!
//! [`TcpStream`] and [`TcpListener`] are tokio's own types, so what is shipped pays nothing for this seam. With the
//! feature `simulation` they are either tokio's or those of the network that the thread has entered
//! (`simulation::enter`), with the same methods. What only a kernel's socket has goes through [`kernel`] and the
//! options below.

#[cfg(feature = "simulation")]
mod either;
mod options;
#[cfg(feature = "simulation")]
pub mod simulation;

#[cfg(feature = "simulation")]
pub use either::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
pub use options::{KeepAlive, set_keepalive, set_kernel_keepalive, set_send_buffer_size};
#[cfg(not(feature = "simulation"))]
pub use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(not(feature = "simulation"))]
pub use tokio::net::{TcpListener, TcpStream};

/// The kernel's socket behind a stream, if there is one: with it bytes move between memory and socket without a buffer
/// in between.
#[must_use]
pub fn kernel(stream: &TcpStream) -> Option<&tokio::net::TcpStream> {
    #[cfg(not(feature = "simulation"))]
    return Some(stream);
    #[cfg(feature = "simulation")]
    stream.kernel()
}
