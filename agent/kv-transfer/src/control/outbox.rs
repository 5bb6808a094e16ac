//! What goes to one peer: a PUSH with a task of its own behind a bounded queue, so sending never blocks the engine or
//! another peer. While the queue is empty, the thread that sends writes a small message to the socket itself, as far as
//! that takes it: no other thread has to wake for it. Nothing reconnects: when a connection breaks, the peer is lost.

mod direct;

use super::codec;
use super::zmtp::{self, SocketType, ZmtpError};
use crate::net;
use crate::peer_connection::tune;
use crate::tasks::Tasks;
use bytes::Bytes;
use direct::{Direct, Loan};
use parking_lot::{Mutex, MutexGuard};
use pd_identity::Peers;
use pd_protocol::control::ControlMessage;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// Messages waiting for one peer, and their bytes; a peer that falls this far behind is given up.
const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 64 << 20;
/// Until a PUSH is connected. Source: docs/sglang-protocol.md#timeouts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends to one peer; clones share the queue.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: mpsc::Sender<Waiting>,
    waiting_bytes: Arc<AtomicUsize>,
    /// Every sender locks it, and writes directly only while no bytes wait: so messages keep their order.
    direct: Arc<Mutex<Direct>>,
}

/// What waits for the task.
enum Waiting {
    Message(Vec<Bytes>),
    /// What the socket did not take of messages that a sender began to write.
    Rest(Vec<u8>),
}

/// The peer's queue is full, or its connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    #[error("{MESSAGES_MAX} control messages or {BYTES_MAX} bytes of them wait for the peer")]
    Full,
    #[error("the control connection to the peer is closed")]
    Closed,
}

// === impl Outbox ===

impl Outbox {
    /// Starts a PUSH to `endpoint`.
    pub(crate) fn connect(tasks: &Tasks, peers: &Peers, endpoint: &impl Display) -> Self {
        let (queue, messages) = mpsc::channel(MESSAGES_MAX);
        let outbox = Self {
            queue,
            waiting_bytes: Arc::default(),
            direct: Arc::default(),
        };
        let waiting = Arc::clone(&outbox.waiting_bytes);
        let direct = Arc::clone(&outbox.direct);
        let (peers, endpoint) = (peers.clone(), endpoint.to_string());
        tasks.spawn("control sender", async move {
            if let Err(error) = push((&peers, &endpoint), messages, &waiting, &direct).await {
                tracing::debug!(%endpoint, %error, "control connection ended");
            }
        });
        outbox
    }

    /// Waits until the connection is gone.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    pub(crate) fn send(&self, message: &ControlMessage) -> Result<(), SendError> {
        let frames = codec::encode(message);
        self.enqueue(&mut self.direct.lock(), frames)
    }

    /// Sends a message together with the next one, or with `release`: one write, and one wake of the peer.
    pub(crate) fn hold(&self, message: &ControlMessage) -> Result<(), SendError> {
        let frames = codec::encode(message);
        let mut direct = self.direct.lock();
        if self.is_idle() && direct.hold(&frames) {
            return Ok(());
        }
        self.enqueue(&mut direct, frames)
    }

    /// Sends what is held.
    pub(crate) fn release(&self) -> Result<(), SendError> {
        let mut direct = self.direct.lock();
        let rest = direct.write(&[]).map(Waiting::Rest);
        rest.map_or(Ok(()), |rest| self.wait(rest))
    }

    /// Nothing waits, and the task writes nothing.
    fn is_idle(&self) -> bool {
        self.waiting_bytes.load(Ordering::Acquire) == 0
    }

    fn enqueue(
        &self,
        direct: &mut MutexGuard<'_, Direct>,
        frames: Vec<Bytes>,
    ) -> Result<(), SendError> {
        if self.is_idle() && direct.takes(&frames) && !self.queue.is_closed() {
            let rest = direct.write(&frames).map(Waiting::Rest);
            return rest.map_or(Ok(()), |rest| self.wait(rest));
        }
        if let Some(held) = direct.take_held() {
            self.wait(Waiting::Rest(held))?;
        }
        self.wait(Waiting::Message(frames))
    }

    /// Leaves it to the task.
    fn wait(&self, what: Waiting) -> Result<(), SendError> {
        let bytes = what.bytes();
        // A message of more than all of it goes alone.
        let waiting = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = if waiting > 0 && waiting + bytes > BYTES_MAX {
            Err(SendError::Full)
        } else {
            self.queue.try_send(what).map_err(|error| match error {
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

// === impl Waiting ===

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Self::Message(frames) => bytes_of(frames),
            Self::Rest(rest) => rest.len(),
        }
    }
}

fn bytes_of(frames: &[Bytes]) -> usize {
    frames.iter().map(Bytes::len).sum()
}

/// Writes messages until no outbox is left, or the peer closes.
async fn push(
    (peers, endpoint): (&Peers, &str),
    mut messages: mpsc::Receiver<Waiting>,
    waiting_bytes: &AtomicUsize,
    direct: &Mutex<Direct>,
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
    let _loan = Loan::new(direct, net::duplicate(&stream));
    let (mut from_peer, mut to_peer) = tokio::io::split(stream);
    let pushed = async {
        while let Some(waiting) = messages.recv().await {
            match &waiting {
                Waiting::Message(frames) => zmtp::write_message(&mut to_peer, frames).await?,
                Waiting::Rest(rest) => to_peer.write_all(rest).await?,
            }
            // After the write: a sender that sees zero writes next.
            waiting_bytes.fetch_sub(waiting.bytes(), Ordering::Release);
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
