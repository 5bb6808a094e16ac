//! A port of this machine's loopback that leads into the cluster's network. The listening socket comes
//! from outside, the connections are made inside: a socket stays in the network that it was made in.

use crate::binaries::binary;
use crate::kube::daemon::{Daemon, NamespaceScope, Site};
use anyhow::{Context, Result};
use rustix::fd::{AsFd as _, OwnedFd};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

pub struct Forward {
    pub daemon: Daemon,
    /// Where to connect on this machine.
    pub address: SocketAddr,
}

// === impl Forward ===

impl Forward {
    /// # Errors
    /// When no loopback port is free, or `pd-kube` cannot be started.
    pub fn start(site: &Site, inside: NamespaceScope, target: SocketAddrV4) -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.context("no free loopback port")?;
        let address = listener.local_addr()?;
        let command = vec![
            binary("pd-kube").display().to_string(),
            "forward".to_owned(),
            target.to_string(),
        ];
        let name = format!("forward-{target}");
        let stdin = OwnedFd::from(listener).into();
        let daemon = Daemon::spawn_with_stdin(site, inside, &name, command, stdin)?;
        Ok(Self { daemon, address })
    }
}

/// The forwarder's own work: accepts on standard input, connects to `target`.
///
/// # Errors
/// When standard input is no listening socket.
pub async fn serve(target: SocketAddrV4) -> Result<()> {
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener).context("standard input listens")?;
    loop {
        let (mut outside, _) = listener.accept().await.context("accept")?;
        tokio::spawn(async move {
            // Either side may end; the client then sees its connection end.
            if let Ok(mut inside) = TcpStream::connect(target).await {
                let _ = copy_bidirectional(&mut outside, &mut inside).await;
            }
        });
    }
}
