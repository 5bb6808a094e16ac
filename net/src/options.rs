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
    /// How long probes may stay unanswered.
    pub vanished_after: Duration,
    /// Sent bytes as well. Linux counts those for which the peer makes no room, so this is not for peers that may read slowly.
    pub bounds_sent: bool,
}

// === impl KeepAlive ===

impl KeepAlive {
    /// Of a server for the processes of a cluster: what a process asked whose host has vanished is given up within 6 s.
    pub const PROCESSES: Self = Self {
        idle: Duration::from_secs(3),
        interval: Duration::from_secs(1),
        vanished_after: Duration::from_secs(6),
        bounds_sent: false,
    };

    /// Probes until the connection ends.
    fn probes(&self) -> u32 {
        let probing = self.vanished_after.saturating_sub(self.idle).as_millis();
        let probes = probing / self.interval.as_millis().max(1);
        u32::try_from(probes).unwrap_or(u32::MAX).max(1)
    }
}

/// # Errors
/// The socket's.
pub fn set_keepalive(stream: &TcpStream, keepalive: KeepAlive) -> io::Result<()> {
    let Some(stream) = kernel(stream) else {
        #[cfg(feature = "simulation")]
        stream.vanishes_after(keepalive.vanished_after);
        return Ok(());
    };
    set_kernel_keepalive(stream, keepalive)
}

/// As [`set_keepalive`], for the kernel's sockets alone.
///
/// # Errors
/// The socket's.
pub fn set_kernel_keepalive(
    stream: &tokio::net::TcpStream,
    keepalive: KeepAlive,
) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(keepalive.idle)
        .with_interval(keepalive.interval)
        .with_retries(keepalive.probes());
    socket.set_tcp_keepalive(&probes)?;
    let sent = keepalive.bounds_sent.then_some(keepalive.vanished_after);
    socket.set_tcp_user_timeout(sent)
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

#[cfg(test)]
mod tests;
