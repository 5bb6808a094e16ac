//! Control sockets: one PULL per manager, one PUSH per peer. A PUSH has a task of its own behind a
//! bounded queue, so sending never blocks the engine or another peer. Nothing reconnects: when a
//! connection breaks, the peer is lost.

use super::{codec, gate};
use crate::log_limit::LogLimit;
use crate::net;
use crate::tasks::Tasks;
use bytes::Bytes;
use pd_protocol::control::ControlMessage;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use zeromq::{SocketRecv, SocketSend, ZmqMessage};

/// Messages waiting for one peer; a peer that falls this far behind is given up.
const OUTBOX_MAX: usize = 4096;
/// Until a PUSH is connected. Source: docs/sglang-protocol.md#timeouts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends to one peer; clones share the queue.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: mpsc::Sender<Vec<Bytes>>,
}

/// The peer's queue is full, or its connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    #[error("{OUTBOX_MAX} control messages wait for the peer")]
    Full,
    #[error("the control connection to the peer is closed")]
    Closed,
}

impl Outbox {
    /// Starts a PUSH to `endpoint`.
    pub(crate) fn connect(tasks: &Tasks, endpoint: &impl std::fmt::Display) -> Self {
        let (queue, messages) = mpsc::channel(OUTBOX_MAX);
        let endpoint = endpoint.to_string();
        tasks.spawn("control sender", async move {
            if let Err(error) = push(&endpoint, messages).await {
                tracing::debug!(%endpoint, %error, "control connection ended");
            }
        });
        Self { queue }
    }

    /// Waits until the connection is gone.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    pub(crate) fn send(&self, message: &ControlMessage) -> Result<(), SendError> {
        let sent = self.queue.try_send(codec::encode(message));
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }
}

async fn push(endpoint: &str, mut messages: mpsc::Receiver<Vec<Bytes>>) -> zeromq::ZmqResult<()> {
    let mut socket = net::connect_push(endpoint, CONNECT_TIMEOUT).await?;
    while let Some(frames) = messages.recv().await {
        let message = ZmqMessage::try_from(frames).expect("a message has frames");
        socket.send(message).await?;
    }
    Ok(())
}

/// Binds the control port of a manager on `host` and passes every valid message to `handle`: `PrefillSide::handle` or
/// `DecodeSide::handle`, each in its side's `messages.rs`.
/// Returns the port.
pub(crate) async fn listen(
    tasks: &Tasks,
    host: IpAddr,
    handle: impl Fn(ControlMessage) + Send + 'static,
) -> std::io::Result<u16> {
    let public = net::listen(host).await?;
    let port = public.local_addr()?.port();
    let (mut socket, inner) = net::listen_pull().await?;
    tasks.spawn_endless("control gate", gate::run(tasks.clone(), public, inner));
    tasks.spawn_endless("control", async move {
        let log = LogLimit::default();
        loop {
            match socket.recv().await {
                Ok(message) => match codec::decode(&message.into_vec()) {
                    Ok(message) => handle(message),
                    Err(error) => {
                        if let Some(left_out) = log.allows() {
                            tracing::warn!(%error, left_out, "dropped a control message");
                        }
                    }
                },
                Err(error) => tracing::debug!(%error, "control connection broke"),
            }
        }
    });
    Ok(port)
}

#[cfg(test)]
mod tests;
