//! Options of a connection. On a simulated network they mean the same, as far as they mean something there.

use crate::{TcpStream, kernel};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;

/// When a connection to a host that has vanished ends. The kernel answers for a process that is slow or frozen, so these
/// end the connections to lost hosts only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence until the first probe.
    pub idle: Duration,
    /// Between probes.
    pub interval: Duration,
    /// How long sent bytes or probes may stay unanswered.
    pub vanished_after: Duration,
}

/// # Errors
/// The socket's.
pub fn set_keepalive(stream: &TcpStream, keepalive: KeepAlive) -> io::Result<()> {
    let Some(stream) = kernel(stream) else {
        #[cfg(feature = "simulation")]
        stream.vanishes_after(keepalive.vanished_after);
        return Ok(());
    };
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(keepalive.idle)
        .with_interval(keepalive.interval);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(keepalive.vanished_after))
}

/// Bytes that the kernel takes ahead of the peer.
///
/// # Errors
/// The socket's.
pub fn set_send_buffer_size(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    kernel(stream).map_or(Ok(()), |stream| {
        SockRef::from(stream).set_send_buffer_size(bytes)
    })
}
