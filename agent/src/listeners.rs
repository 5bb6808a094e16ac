//! The ports of the process. All are bound before the model is loaded, so that a taken port is
//! reported immediately, and probes find a listener that answers "loading".

use crate::args::Args;
use anyhow::{Context, Result};
use axum::Router;
use axum::serve::ListenerExt;
use pd_http::{Limits, ListenerMetrics, connections_for, serve_peers};
use pd_identity::{Clients, Peers};
use pd_net::{KeepAlive, set_kernel_keepalive};
use pd_protocol::Role;
use std::net::{IpAddr, SocketAddr};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Of the HTTP and the admin API together: a leg of each request that runs or waits.
const CONNECTIONS_MAX: usize = 16_384;

/// Bound but not yet accepting.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) http: TcpListener,
    pub(crate) admin: TcpListener,
    /// On prefill only.
    pub(crate) bootstrap: Option<TcpListener>,
}

/// Numbers of the bound ports that peers need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) http: u16,
    /// On prefill only.
    pub(crate) bootstrap: Option<u16>,
}

// === impl Listeners ===

impl Listeners {
    /// # Errors
    /// Names the flag of a port that cannot be bound.
    pub(crate) async fn bind(args: &Args) -> Result<Self> {
        let host = args.server.host;
        let admin = args.server.admin_port();
        let admin = admin.context("the arguments were checked, so there is an admin port")?;
        let bootstrap = match args.disaggregation.role {
            Role::Prefill => {
                let port = args.disaggregation.transfer.bootstrap_port;
                Some(bind(host, port, "--disaggregation-bootstrap-port").await?)
            }
            Role::Unified | Role::Decode => None,
        };
        let listeners = Self {
            http: bind(host, args.server.port, "--port").await?,
            admin: bind(host, admin, "--admin-port").await?,
            bootstrap,
        };
        listeners.announce()?;
        Ok(listeners)
    }

    /// The numbers of the bound ports, even where a flag was 0.
    pub(crate) fn ports(&self) -> Result<Ports> {
        let bootstrap = self.bootstrap.as_ref().map(TcpListener::local_addr);
        Ok(Ports {
            http: self.http.local_addr()?.port(),
            bootstrap: bootstrap.transpose()?.map(|address| address.port()),
        })
    }

    fn announce(&self) -> Result<()> {
        let Self {
            http,
            admin,
            bootstrap,
        } = self;
        tracing::info!("HTTP API on {}", http.local_addr()?);
        tracing::info!("admin API on {}", admin.local_addr()?);
        if let Some(bootstrap) = bootstrap {
            tracing::info!("bootstrap server on {}", bootstrap.local_addr()?);
        }
        Ok(())
    }
}

pub(crate) async fn bind(host: IpAddr, port: u16, flag: &str) -> Result<TcpListener> {
    let address = SocketAddr::new(host, port);
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}; choose another {flag}"))
}

/// Serves `router` until `end`, then lets open requests finish. If `peers` have a key, connections are of TLS, also
/// those of clients that have none.
pub(crate) async fn serve(
    listener: TcpListener,
    peers: Peers,
    router: Router,
    metrics: ListenerMetrics,
    end: CancellationToken,
) {
    // Events are small and must not be delayed to share packets. A router that has vanished waits for nothing.
    let listener = listener.tap_io(|stream| {
        let tuned = stream.set_nodelay(true);
        if let Err(why) = tuned.and_then(|()| set_kernel_keepalive(stream, KeepAlive::PROCESSES)) {
            tracing::debug!("cannot set the options of a connection: {why}");
        }
    });
    let limits = Limits {
        connections: connections_for(CONNECTIONS_MAX, 1) / 2,
        ..Limits::default()
    };
    let clients = (peers, Clients::Optional);
    serve_peers(listener, clients, router, (limits, metrics), end).await;
}
