//! What goes to one peer: a PUSH with a task of its own behind a bounded queue, so sending never blocks the engine or
//! another peer. Nothing reconnects: when a connection breaks, the peer is lost.

use super::codec;
use super::zmtp::{self, SocketType, ZmtpError};
use crate::net;
use crate::peer_connection::tune;
use crate::tasks::Tasks;
use bytes::Bytes;
use pd_identity::Peers;
use pd_protocol::control::ControlMessage;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

/// Messages waiting for one peer, and their bytes; a peer that falls this far behind is given up.
const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 64 << 20;
/// Until a PUSH is connected. Source: docs/sglang-protocol.md#timeouts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends to one peer; clones share the queue.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: mpsc::Sender<Vec<Bytes>>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// The peer's queue is full, or its connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    #[error("{MESSAGES_MAX} control messages or {BYTES_MAX} bytes of them wait for the peer")]
    Full,
    #[error("the control connection to the peer is closed")]
    Closed,
}

impl Outbox {
    /// Starts a PUSH to `endpoint`.
    pub(crate) fn connect(tasks: &Tasks, peers: &Peers, endpoint: &impl Display) -> Self {
        let (queue, messages) = mpsc::channel(MESSAGES_MAX);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&waiting_bytes);
        let (peers, endpoint) = (peers.clone(), endpoint.to_string());
        tasks.spawn("control sender", async move {
            if let Err(error) = push(&peers, &endpoint, messages, &waiting).await {
                tracing::debug!(%endpoint, %error, "control connection ended");
            }
        });
        Self {
            queue,
            waiting_bytes,
        }
    }

    /// Waits until the connection is gone.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    pub(crate) fn send(&self, message: &ControlMessage) -> Result<(), SendError> {
        let frames = codec::encode(message);
        let bytes = bytes_of(&frames);
        // A message of more than all of it goes alone.
        let waiting = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = if waiting > 0 && waiting + bytes > BYTES_MAX {
            Err(SendError::Full)
        } else {
            self.queue.try_send(frames).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => SendError::Full,
                mpsc::error::TrySendError::Closed(_) => SendError::Closed,
            })
        };
        if sent.is_err() {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }
}

fn bytes_of(frames: &[Bytes]) -> usize {
    frames.iter().map(Bytes::len).sum()
}

/// Writes messages until no outbox is left, or the peer closes.
async fn push(
    peers: &Peers,
    endpoint: &str,
    mut messages: mpsc::Receiver<Vec<Bytes>>,
    waiting_bytes: &AtomicUsize,
) -> Result<(), ZmtpError> {
    let connected = async {
        let stream = net::connect(endpoint).await?;
        tune(&stream)?;
        let mut stream = peers.connect(stream).await?;
        zmtp::greet(&mut stream, SocketType::Push).await?;
        Ok::<_, ZmtpError>(stream)
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
    let stream = connected.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
    let (mut from_peer, mut to_peer) = tokio::io::split(stream);
    let pushed = async {
        while let Some(frames) = messages.recv().await {
            zmtp::write_message(&mut to_peer, &frames).await?;
            waiting_bytes.fetch_sub(bytes_of(&frames), Ordering::Relaxed);
        }
        Ok(())
    };
    // A PULL says nothing more; its end is the peer's.
    let mut said = [0];
    tokio::select! {
        ended = pushed => ended,
        read = from_peer.read(&mut said) => match read {
            Ok(0) => Ok(()),
            // Over TLS, a process that ends closes without a word.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(()),
            Ok(_) => Err(ZmtpError::Spoke),
            Err(error) => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests;
