//! The control port of a manager: a PULL that strangers reach. Its connections are bounded, in all and for each
//! address; each greets and hands over its messages within deadlines, and only whole messages that decode are handled.

use super::codec;
use super::zmtp::{self, SocketType, ZmtpError};
use crate::admission::{Admission, CONNECTIONS_PER_ADDRESS_MAX, Counted};
use crate::config::TransferConfig;
use crate::log_limit::LogLimit;
use crate::net::{self, TcpListener, TcpStream};
use crate::peer_connection::tune;
use crate::tasks::Tasks;
use pd_identity::{Clients, PeerId, Peers};
use pd_protocol::control::ControlMessage;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::sync::{Mutex, Semaphore};

/// Connections at once: one per peer rank.
const CONNECTIONS_MAX: usize = 4096;

/// Handles a message, and which process it is of; it does not block.
pub(crate) trait Handle: Fn(ControlMessage, Option<PeerId>) + Send + 'static {}

impl<F: Fn(ControlMessage, Option<PeerId>) + Send + 'static> Handle for F {}

/// What all connections of a port share.
struct Port<F> {
    tasks: Tasks,
    /// Handles one message at a time, in the order of its connection, which reads on after that; until it panics.
    handle: Mutex<Option<F>>,
    peers: Peers,
    /// Of connections that are closed, and of messages that are dropped.
    closed: LogLimit,
    dropped: LogLimit,
}

/// Binds the control port of a manager and passes every valid message, and which process it is of, to `handle`:
/// `PrefillSide::handle` or `DecodeSide::handle`, each in its side's `messages.rs`.
/// Returns the port.
pub(crate) async fn listen(
    tasks: &Tasks,
    transfer: &TransferConfig,
    handle: impl Handle,
) -> std::io::Result<u16> {
    let listener = net::listen(transfer.host).await?;
    let port = listener.local_addr()?.port();
    let shared = Arc::new(Port {
        tasks: tasks.clone(),
        handle: Mutex::new(Some(handle)),
        peers: transfer.peers.clone(),
        closed: LogLimit::default(),
        dropped: LogLimit::default(),
    });
    tasks.spawn_endless("control listener", accept(tasks.clone(), listener, shared));
    Ok(port)
}

async fn accept(tasks: Tasks, listener: TcpListener, port: Arc<Port<impl Handle>>) -> Infallible {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let admission = Admission::new();
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        let slot = slot.expect("the semaphore is never closed");
        let Ok((peer, from)) = listener.accept().await else {
            // Out of file descriptors: others close in time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(counted) = admission.count(from.ip()) else {
            if let Some(left_out) = port.closed.allows() {
                tracing::warn!(%from, left_out, "closed a control connection: {CONNECTIONS_PER_ADDRESS_MAX} of its address are open");
            }
            continue;
        };
        let port = Arc::clone(&port);
        tasks.spawn("control connection", async move {
            if let Err(error) = port.serve(peer, &counted).await
                && let Some(left_out) = port.closed.allows()
            {
                tracing::warn!(%from, %error, left_out, "control connection closed");
            }
            drop((counted, slot));
        });
    }
}

// === impl Port ===

impl<F: Handle> Port<F> {
    /// False once a message has made it panic.
    async fn handle(&self, message: ControlMessage, from: Option<PeerId>) -> bool {
        let mut handle = self.handle.lock().await;
        let Some(call) = &*handle else {
            return false;
        };
        let has_ended = self.tasks.run("control", || call(message, from));
        if !has_ended {
            *handle = None;
        }
        has_ended
    }

    /// Handles what a peer sends until it closes.
    async fn serve(&self, peer: TcpStream, counted: &Counted) -> Result<(), ZmtpError> {
        tune(&peer)?;
        let peer = self.peers.accept(peer, Clients::Required).await?;
        let from = peer.peer();
        let mut peer = BufReader::new(peer);
        zmtp::greet(&mut peer, SocketType::Pull).await?;
        let mut next = zmtp::read_first_message(&mut peer, &counted.memory).await?;
        while let Some((frames, held)) = next {
            match codec::decode(&frames) {
                Ok(message) => {
                    if !self.handle(message, from).await {
                        // The manager has failed, and its rooms fail for that, not for a connection that ends.
                        return std::future::pending().await;
                    }
                }
                Err(error) => {
                    if let Some(left_out) = self.dropped.allows() {
                        tracing::warn!(%error, left_out, "dropped a control message");
                    }
                }
            }
            drop((frames, held));
            next = zmtp::read_message(&mut peer, &counted.memory).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
