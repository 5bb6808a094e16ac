//! A loopback port for a program that cannot take port 0.

use anyhow::{Context, Result, bail};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// A port reserved for as long as this lives. It is bound and does not listen, and a program
/// that shares ports (`SO_REUSEPORT`) can bind it too.
#[derive(Debug)]
pub struct Reserved {
    _socket: OwnedFd,
    pub address: SocketAddrV4,
}

// === impl Reserved ===

impl Reserved {
    /// # Errors
    /// When no port is free.
    pub fn new() -> Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).context("a socket")?;
        sockopt::set_socket_reuseport(&socket, true).context("share the port")?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
            .context("no free loopback port")?;
        let bound = SocketAddr::try_from(getsockname(&socket).context("read the port")?);
        let Ok(SocketAddr::V4(address)) = bound else {
            bail!("a bound IPv4 socket has no IPv4 address");
        };
        Ok(Self {
            _socket: socket,
            address,
        })
    }
}
