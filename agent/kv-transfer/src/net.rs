//! The seam to the network: every socket of this crate is opened here, so a simulation of the whole system
//! replaces this file, and `clock.rs`.
//!
//! `shm` has Unix sockets of its own: they hand over descriptors of this kernel's memory, which no simulated
//! network can carry.

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::ToSocketAddrs;

pub(crate) use tokio::net::{TcpListener, TcpStream};

pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

pub(crate) async fn connect(addr: impl ToSocketAddrs) -> std::io::Result<TcpStream> {
    TcpStream::connect(addr).await
}

/// Listens on a port that the kernel chooses.
pub(crate) async fn listen(host: IpAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind((host, 0)).await
}

/// Takes over a listener of the caller, within its runtime.
pub(crate) fn adopt(listener: std::net::TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

pub(crate) fn http_client(connect_timeout: Duration) -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(connect_timeout));
    Client::builder(TokioExecutor::new()).build(connector)
}
