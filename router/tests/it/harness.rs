//! A router between mock workers.

use crate::client::Client;
use crate::mock::Mock;
use clap::Parser;
use pd_protocol::Role;
use pd_router::Args;
use pd_router::Config;
use pd_router::Router;
use pd_router::{Server, Stopped};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A router that serves until it is dropped.
pub(crate) struct Running {
    pub(crate) client: Client,
    pub(crate) admin: Client,
    pub(crate) api_addr: SocketAddr,
    pub(crate) router: Arc<Router>,
    stop: Option<oneshot::Sender<()>>,
    stopped: JoinHandle<Result<Stopped, String>>,
}

/// One prefill and one decode worker behind a router.
pub(crate) struct Pair {
    pub(crate) running: Running,
    pub(crate) prefill: Mock,
    pub(crate) decode: Mock,
}

/// The configuration of these flags, on free ports, with pauses that a test can wait for.
pub(crate) fn config(flags: &str) -> Config {
    let line = format!(
        "pd-router --host 127.0.0.1 --port 0 --admin-port 0 --retry-initial-backoff-ms 1 {flags}"
    );
    let mut config = Args::parse_from(line.split_whitespace())
        .into_config()
        .unwrap();
    config.admin_token = None;
    config
}

impl Pair {
    pub(crate) async fn start(flags: &str) -> Self {
        let prefill = Mock::start(Role::Prefill).await;
        let decode = Mock::start(Role::Decode).await;
        let running = Running::start(config(flags), &[&prefill, &decode]).await;
        Self {
            running,
            prefill,
            decode,
        }
    }
}

impl Running {
    /// Starts a router with these workers and waits until all of them serve.
    pub(crate) async fn start(mut config: Config, workers: &[&Mock]) -> Self {
        config.workers = workers.iter().map(|mock| mock.spec()).collect();
        let server = Server::bind(config).await.unwrap();
        let api_addr = server.api_addr().unwrap();
        let admin_addr = server.admin_addr().unwrap();
        let router = Arc::clone(&server.router);
        let (stop, stopping) = oneshot::channel::<()>();
        let stopped = tokio::spawn(async {
            let stopping = async {
                let _ = stopping.await;
            };
            let stopped = server.run(stopping).await;
            stopped.map_err(|lost| lost.to_string())
        });
        let running = Self {
            client: Client::new(api_addr),
            admin: Client::new(admin_addr),
            api_addr,
            router,
            stop: Some(stop),
            stopped,
        };
        let count = workers.len();
        running.until(|router| serving(router) == count).await;
        running
    }

    /// Waits until the router is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&Router) -> bool) {
        let reached = async {
            while !wanted(&self.router) {
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(10), reached).await;
        assert!(reached.is_ok(), "still {:?}", self.router.workers());
    }

    /// Waits until nothing is in flight and nothing is held.
    pub(crate) async fn until_idle(&self) {
        self.until(|router| {
            let workers = router.workers();
            router.with_rooms() == 0 && workers.iter().all(|worker| worker.in_flight == 0)
        })
        .await;
    }

    /// Asks the router to stop.
    pub(crate) fn stop(&mut self) {
        let stop = self.stop.take().expect("stopped once");
        stop.send(()).expect("the router is running");
    }

    pub(crate) async fn stopped(self) -> Result<Stopped, String> {
        self.stopped.await.unwrap()
    }

    /// One line of `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let reply = self.client.get("/metrics").await;
        let line = reply.text().lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or_default()
    }
}

/// Waits until something listens at the address.
pub(crate) async fn until_open(addr: SocketAddr) {
    let open = async {
        while TcpStream::connect(addr).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let open = tokio::time::timeout(Duration::from_secs(30), open).await;
    assert!(open.is_ok(), "nothing listens at {addr}");
}

/// Workers to which requests may go.
pub(crate) fn serving(router: &Router) -> usize {
    let workers = router.workers();
    let serving = workers
        .iter()
        .filter(|worker| worker.state == pd_protocol::workers::WorkerState::Serving);
    serving.count()
}
