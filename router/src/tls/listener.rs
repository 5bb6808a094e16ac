//! A listener that gives connections out once their handshake is done. Handshakes run beside each
//! other in tasks of their own, so that a client that is slow, or never goes on, delays no other.

use crate::clock::timeout;
use crate::metrics::{HandshakeFault, Metrics};
use crate::net::{TcpListener, TcpStream, tune};
use crate::reload::Reloaded;
use axum::serve::Listener;
use rustls::ServerConfig;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A handshake takes two round trips and a millisecond of CPU; what takes longer than this is a
/// client that has gone, or one that holds connections on purpose.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes in flight at most. One more ends the oldest, which is the likeliest to go nowhere;
/// refusing the newest would let a thousand idle connections lock everyone out.
const HANDSHAKES_MAX: usize = 1024;

type Handshake = Result<(TlsStream<TcpStream>, SocketAddr), HandshakeFault>;

pub(crate) struct TlsListener {
    tcp: TcpListener,
    config: Reloaded<ServerConfig>,
    handshakes: JoinSet<Handshake>,
    handshakes_max: usize,
    /// Those in flight, the oldest first, among some that have ended.
    begun: VecDeque<AbortHandle>,
    metrics: Arc<Metrics>,
}

// === impl TlsListener ===

impl TlsListener {
    pub(crate) fn new(
        tcp: TcpListener,
        config: Reloaded<ServerConfig>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            tcp,
            config,
            handshakes: JoinSet::new(),
            handshakes_max: HANDSHAKES_MAX,
            begun: VecDeque::new(),
            metrics,
        }
    }

    fn begin(&mut self, mut tcp: TcpStream, client: SocketAddr) {
        self.make_room();
        tune(&mut tcp);
        let acceptor = TlsAcceptor::from(self.config.get());
        let handshake = async move {
            match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(tcp)).await {
                Ok(Ok(tls)) => Ok((tls, client)),
                Ok(Err(error)) => {
                    tracing::debug!(%client, %error, "TLS handshake failed");
                    Err(HandshakeFault::Broken)
                }
                Err(_) => Err(HandshakeFault::Timeout),
            }
        };
        self.begun.push_back(self.handshakes.spawn(handshake));
    }

    /// Forgets what has ended, up to the oldest handshake in flight, and ends that one if too many
    /// are.
    fn make_room(&mut self) {
        while self.begun.front().is_some_and(AbortHandle::is_finished) {
            self.begun.pop_front();
        }
        if self.begun.len() >= self.handshakes_max {
            self.begun.retain(|handshake| !handshake.is_finished());
        }
        if self.begun.len() >= self.handshakes_max
            && let Some(oldest) = self.begun.pop_front()
        {
            oldest.abort();
        }
    }

    /// The connection, if the handshake has made one.
    fn end(
        &self,
        handshake: Result<Handshake, JoinError>,
    ) -> Option<(TlsStream<TcpStream>, SocketAddr)> {
        let fault = match handshake {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(fault)) => fault,
            Err(_) => HandshakeFault::CutOff,
        };
        self.metrics.handshake_failed(fault);
        None
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                (tcp, client) = Listener::accept(&mut self.tcp) => self.begin(tcp, client),
                Some(ended) = self.handshakes.join_next() => {
                    if let Some(connection) = self.end(ended) {
                        return connection;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

#[cfg(test)]
mod tests;
