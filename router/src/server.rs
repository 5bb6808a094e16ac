//! The listening sockets, and how the router stops: unready first, while requests that still come
//! are served; then no new connection; then the answers in flight finish within the grace period.

use crate::admin;
use crate::api;
use crate::api_keys::{ApiKeys, KeyFilesError};
use crate::clock;
use crate::config::{Config, HostPort};
use crate::discovery::{self, DiscoveryError};
use crate::metrics::Metrics;
use crate::net::{self, TcpListener, tune};
use crate::reload::Reloaded;
use crate::router::Router;
use crate::tls::{TlsError, TlsListener};
use crate::vitals::{LostTask, Vitals};
use crate::workers::RegistryError;
use axum::serve::{Listener, ListenerExt};
use pd_http::{Limits, connections_for, serve};
use pd_identity::{Identity, KeyFileError, Peers};
use pd_protocol::sockets::{self, PROC_NET_TCP, is_delivered};
use pd_spans::{Spans, SpansError};
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A client's connection, and one to each worker of its pair.
const FILES_PER_CONNECTION: u64 = 3;
/// Of operators and Prometheuses.
const ADMIN_CONNECTIONS_MAX: usize = 256;
/// The key file's word in metrics.
const PEER_KEYS: &str = "peer_keys";
/// The router's name in traces.
const SERVICE: &str = "pdserve-router";
/// Of the files that the process may open, one in so many.
const ADMIN_SHARE: u64 = 16;

/// A router that is bound to its ports and not yet serving.
pub struct Server {
    pub router: Arc<Router>,
    api: TcpListener,
    tls: Option<Reloaded<ServerConfig>>,
    admin: TcpListener,
    prometheus: Option<TcpListener>,
    /// Clients' connections at once.
    connections: usize,
    delay: Duration,
    grace: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {source}; {}", remedy(source, flags))]
    Bind {
        address: String,
        flags: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    ApiKeys(#[from] KeyFilesError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("--peer-key-file: {0}")]
    PeerKeys(#[from] KeyFileError),
    #[error("--otlp-traces-endpoint: {0}")]
    Spans(#[from] SpansError),
    #[error(transparent)]
    Worker(#[from] RegistryError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every answer in flight was finished.
    Drained,
    /// The grace period ended first.
    CutOff,
}

// === impl Server ===

impl Server {
    /// Binds the ports and begins to probe the workers of `config`, or to look for them.
    ///
    /// # Errors
    /// Names the flag whose address cannot be bound or whose files cannot be used, the worker that
    /// is none, or what keeps pods from being watched.
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new());
        let vitals = Vitals::default();
        let api_keys = ApiKeys::open(&config.api_keys, &metrics, &vitals)?;
        let tls = config.tls.clone();
        let tls = tls
            .map(|files| Reloaded::open(files, &metrics, &vitals))
            .transpose()?;
        let api = listen("--host or --port", &config.api).await?;
        let admin = listen("--admin-host or --admin-port", &config.admin).await?;
        let prometheus = match &config.prometheus {
            Some(address) => Some(listen("--prometheus-host or --prometheus-port", address).await?),
            None => None,
        };
        let peers = open_peers(config.peer_key_file.as_deref(), &metrics, &vitals)?;
        let instance = format!("{}:{}", config.api.0, config.api.1);
        let spans = config
            .otlp_traces_endpoint
            .as_deref()
            .map(|endpoint| Spans::start(endpoint, SERVICE, &instance))
            .transpose()?;
        let router = Router::new(&config, api_keys, metrics, vitals, peers, spans);
        for spec in config.workers {
            router.add_worker(spec)?;
        }
        if let Some(config) = config.discovery {
            discovery::start(&router, config).await?;
        }
        Ok(Self {
            router,
            api,
            tls,
            admin,
            prometheus,
            connections: connections_for(config.connections_max, FILES_PER_CONNECTION),
            delay: config.shutdown_delay,
            grace: config.shutdown_grace,
        })
    }

    /// # Errors
    /// The socket's.
    pub fn api_addr(&self) -> io::Result<SocketAddr> {
        self.api.local_addr()
    }

    /// Whether the API is served over TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// # Errors
    /// The socket's.
    pub fn admin_addr(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until `shutdown`, or until a task is lost that requests depend on, then drains.
    ///
    /// # Errors
    /// Which task was lost.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Stopped, LostTask> {
        let port = self.api.local_addr().map(|address| address.port());
        let router = Arc::clone(&self.router);
        let _admin_and_metrics = spawn_admin_and_metrics(&self.router, self.admin, self.prometheus);
        let stop = CancellationToken::new();
        let mut serving = match self.tls {
            None => {
                let listener = self.api.tap_io(tune);
                spawn_api(&self.router, listener, self.connections, &stop)
            }
            Some(tls) => {
                let metrics = Arc::clone(&self.router.metrics);
                let listener = TlsListener::new(self.api, tls, metrics);
                spawn_api(&self.router, listener, self.connections, &stop)
            }
        };
        let lost = tokio::select! {
            () = shutdown => None,
            lost = self.router.vitals.lost() => Some(lost),
        };
        self.router.begin_draining();
        if let Some(lost) = &lost {
            tracing::error!("{lost}; ends with the answers in flight");
        } else {
            tracing::info!(delay = ?self.delay, "shutting down; closing the listeners after the delay");
            clock::sleep(self.delay).await;
        }
        tracing::info!("finishing answers in flight");
        stop.cancel();
        let stopped = match clock::timeout(self.grace, &mut serving).await {
            Ok(_) => {
                if let Ok(port) = port {
                    deliver(port).await;
                }
                Stopped::Drained
            }
            Err(_) => {
                serving.abort();
                Stopped::CutOff
            }
        };
        if router.spans.is_some() {
            // A panic there has been logged.
            let _ = tokio::task::spawn_blocking(move || router.flush_spans()).await;
        }
        lost.map_or(Ok(stopped), Err)
    }
}

/// The keys of the deployment, if there is a file of them, which is followed from then on.
fn open_peers(
    key_file: Option<&Path>,
    metrics: &Arc<Metrics>,
    vitals: &Vitals,
) -> Result<Peers, KeyFileError> {
    let Some(file) = key_file else {
        return Ok(Peers::Plain);
    };
    let counts = Arc::clone(metrics);
    let changed = move |is_taken| counts.reloaded(PEER_KEYS, is_taken);
    let (identity, follow) = Identity::follow(file, changed)?;
    metrics.show_keys(&identity);
    vitals.spawn("polls of the key file", follow);
    Ok(Peers::Tls(identity))
}

/// Serves the API until `stop`, then finishes the answers in flight. A type for each kind of
/// listener, so that plain connections pay nothing for there being others.
fn spawn_api<L: Listener<Addr = SocketAddr>>(
    router: &Arc<Router>,
    listener: L,
    connections: usize,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let limits = Limits {
        connections,
        ..Limits::default()
    };
    let api = serve(
        listener,
        api::routes(Arc::clone(router)),
        (limits, router.metrics.connections("api")),
        stop.clone(),
    );
    spawn_listener(&router.vitals, "API listener", stop, api)
}

/// A listener that ends by itself is lost.
fn spawn_listener(
    vitals: &Vitals,
    task: &'static str,
    end: &CancellationToken,
    listener: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let (end, report_to) = (end.clone(), vitals.clone());
    vitals.spawn(task, async move {
        listener.await;
        if !end.is_cancelled() {
            report_to.report(task, "it ended");
        }
    })
}

/// Serves the admin API and metrics until the guard is dropped, so also while the router drains.
fn spawn_admin_and_metrics(
    router: &Arc<Router>,
    admin: TcpListener,
    prometheus: Option<TcpListener>,
) -> DropGuard {
    let end = CancellationToken::new();
    let limits = Limits {
        connections: connections_for(ADMIN_CONNECTIONS_MAX, ADMIN_SHARE),
        ..Limits::default()
    };
    let routes = admin::routes(Arc::clone(router));
    let counted = (limits, router.metrics.connections("admin"));
    let listener = serve(admin.tap_io(tune), routes, counted, end.clone());
    spawn_listener(&router.vitals, "admin listener", &end, listener);
    if let Some(listener) = prometheus {
        let routes = api::metrics_routes(Arc::clone(router));
        let counted = (limits, router.metrics.connections("metrics"));
        let listener = serve(listener, routes, counted, end.clone());
        spawn_listener(&router.vitals, "metrics listener", &end, listener);
    }
    end.drop_guard()
}

/// Waits until clients have the ends of their answers.
async fn deliver(port: u16) {
    let tables = || PROC_NET_TCP.into_iter().flat_map(std::fs::read_to_string);
    for _ in 0..sockets::POLLS {
        if is_delivered(tables(), port) {
            return;
        }
        clock::sleep(sockets::POLL_INTERVAL).await;
    }
    tracing::warn!("client did not acknowledge the end of its answer");
}

async fn listen(flags: &'static str, (host, port): &HostPort) -> Result<TcpListener, StartError> {
    let bound = net::listen(host, *port).await;
    bound.map_err(|source| StartError::Bind {
        address: if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        },
        flags,
        source,
    })
}

/// What to do about an address that cannot be bound.
fn remedy(source: &io::Error, flags: &str) -> String {
    let or_stop = if source.kind() == io::ErrorKind::AddrInUse {
        ", or stop the process that listens there"
    } else {
        ""
    };
    format!("give another {flags}{or_stop}")
}

#[cfg(test)]
mod tests;
