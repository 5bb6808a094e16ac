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
    bounds_sent: true,
};
/// A client whose host has vanished gives back what its request holds; one on a bad path has a minute.
const CLIENT_KEEPALIVE: KeepAlive = KeepAlive {
    idle: Duration::from_secs(30),
    interval: Duration::from_secs(10),
    vanished_after: Duration::from_secs(60),
    bounds_sent: false,
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

/// Sets the options of a client's connection. With Nagle's algorithm on, the first token of a stream on a kept connection
/// would wait for the client's delayed acknowledgement, 40 ms.
pub(crate) fn tune(stream: &mut TcpStream) {
    let tuned = stream.set_nodelay(true);
    if let Err(error) = tuned.and_then(|()| set_keepalive(stream, CLIENT_KEEPALIVE)) {
        tracing::debug!(%error, "cannot set the options of a connection");
    }
}

/// A client of the cluster that this process runs in, or that KUBECONFIG names.
///
/// # Errors
/// Where there is no cluster.
pub(crate) async fn cluster() -> kube::Result<kube::Client> {
    kube::Client::try_default().await
}
