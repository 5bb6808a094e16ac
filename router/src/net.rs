//! The seam to the network: every socket of the router is opened here, and nothing else names
//! tokio's sockets or builds a client of the apiserver.
//!
//! The types are `pd_net`'s: tokio's own, and in a simulation of the whole system those of its
//! network. Types and no trait, since behind a trait object every read of a token stream would be a
//! virtual call.

use pd_net::{KeepAlive, set_keepalive};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

pub(crate) use pd_net::{TcpListener, TcpStream};

/// A worker whose host has vanished is noticed within 6 s, also in the middle of a stream.
const KEEPALIVE: KeepAlive = KeepAlive {
    idle: Duration::from_secs(3),
    interval: Duration::from_secs(1),
    vanished_after: Duration::from_secs(6),
};

/// Opens a connection to a worker.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    set_keepalive(&stream, KEEPALIVE)?;
    Ok(stream)
}

/// Listens at a port. `::` is every address; a kernel without IPv6 has those of IPv4.
pub(crate) async fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let bound = TcpListener::bind((host, port)).await;
    let taken = [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied];
    let failed = bound.as_ref().err().map(io::Error::kind);
    if host == "::" && failed.is_some_and(|kind| !taken.contains(&kind)) {
        return TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await;
    }
    bound
}

/// With Nagle's algorithm on, the first token of a stream on a kept connection would wait for the
/// client's delayed acknowledgement, 40 ms.
pub(crate) fn no_delay(stream: &mut TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

/// A client of the cluster that this process runs in, or that KUBECONFIG names.
///
/// # Errors
/// Where there is no cluster.
pub(crate) async fn cluster() -> kube::Result<kube::Client> {
    kube::Client::try_default().await
}
