//! A bootstrap server with a runtime of its own.

use super::fixture::HOST;
use crate::BootstrapServer;
use crate::config::BootstrapAddr;
use pd_identity::Peers;
use std::net::TcpListener;

/// A bootstrap server and its runtime.
pub(crate) struct Bootstrap {
    pub(crate) addr: BootstrapAddr,
    _server: BootstrapServer,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Bootstrap {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // As a process that ends: with its connections. A runtime may not end within another.
            std::thread::spawn(move || drop(runtime)).join().unwrap();
        }
    }
}

pub(crate) fn mk_bootstrap(port: u16, boot_id: &str) -> Bootstrap {
    mk_bootstrap_among(&Peers::Plain, port, boot_id)
}

pub(crate) fn mk_bootstrap_among(peers: &Peers, port: u16, boot_id: &str) -> Bootstrap {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let entered = runtime.enter();
    let listener = TcpListener::bind((HOST, port)).unwrap();
    let server = BootstrapServer::start(listener, peers, boot_id, "compat").unwrap();
    let addr = BootstrapAddr {
        host: HOST.to_string(),
        port: server.local_addr().port(),
    };
    drop(entered);
    Bootstrap {
        addr,
        _server: server,
        runtime: Some(runtime),
    }
}
