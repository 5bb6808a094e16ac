//! What a simulated network provides, and how a thread enters one.

use futures_util::future::BoxFuture;
use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The network as one host has it.
pub trait Network: Send + Sync {
    /// Opens a connection.
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<Arc<dyn Stream>>>;

    /// Listens at a port, or at any free one.
    ///
    /// # Errors
    /// The port is taken.
    fn bind(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>>;
}

/// One end of a connection, which closes when it is dropped.
pub trait Stream: Debug + Send + Sync {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;
    /// As `poll_read`, and what is read stays.
    fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
    /// # Errors
    /// `WouldBlock`, or the connection's.
    fn try_read(&self, buf: &mut [u8]) -> io::Result<usize>;
    /// Ends what this end writes.
    fn shutdown(&self);
    fn local_addr(&self) -> SocketAddr;
    fn peer_addr(&self) -> SocketAddr;
    /// Ends when the other host cannot be reached for this long.
    fn vanishes_after(&self, limit: Duration);
}

/// A port that is listened at, until it is dropped.
pub trait Listener: Debug + Send + Sync {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Arc<dyn Stream>, SocketAddr)>>;
    fn local_addr(&self) -> SocketAddr;
}

/// Until it is dropped, sockets that this thread opens are of the network that it was made for.
#[must_use]
pub struct Entered(Option<Arc<dyn Network>>);

thread_local! {
    static NETWORK: RefCell<Option<Arc<dyn Network>>> = const { RefCell::new(None) };
}

/// Opens this thread's sockets on `network` from now on.
pub fn enter(network: Arc<dyn Network>) -> Entered {
    Entered(NETWORK.replace(Some(network)))
}

pub(crate) fn entered() -> Option<Arc<dyn Network>> {
    NETWORK.with_borrow(Clone::clone)
}

impl Drop for Entered {
    fn drop(&mut self) {
        NETWORK.replace(self.0.take());
    }
}
