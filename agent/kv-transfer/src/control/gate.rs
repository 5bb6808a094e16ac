//! What strangers send never reaches the ZMQ socket unchecked: its decoder reserves any length
//! a frame header states and keeps the parts of an endless multipart, so nine bytes could end the
//! process. The gate owns the public port, forwards whole messages within bounds to the socket's own
//! loopback port, and closes connections that break them. A peer greets and hands over each message
//! within deadlines, and what has come of unfinished messages is bounded, in each and in all.

use crate::log_limit::LogLimit;
use crate::net::{self, TcpListener, TcpStream};
use crate::peer_connection::tune;
use crate::tasks::Tasks;
use parking_lot::Mutex;
use pd_protocol::control::guard::{FRAME_BYTES_MAX, FRAMES_MAX};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// ZMTP 3: length of the greeting, and flags of a frame. Source: RFC 23/ZMTP.
const GREETING_BYTES: usize = 64;
const FLAG_MORE: u8 = 1;
const FLAG_LONG: u8 = 2;
/// Control connections at once: one per peer rank.
const CONNECTIONS_MAX: usize = 4096;
/// Of them from one address: a host's ranks, several times over.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 256;
/// Greeting and handshake take two round trips.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// From a message's first byte to its last: it is written in one go.
const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// How long a message waits for memory that others hold: they end within their own limits, unless they wait for
/// each other.
const MEMORY_LIMIT: Duration = Duration::from_secs(30);
/// Most bytes of a message: its largest list, and the rest, which is small.
const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX + (1 << 20);
/// Memory for messages that are larger than a piece and not complete: in all, and for one address.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 2048;
const PIECES_PER_ADDRESS_MAX: usize = 512;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("a frame states {0} bytes, beyond the bound of {FRAME_BYTES_MAX}")]
    FrameLength(u64),
    #[error("a message has more than {FRAMES_MAX} frames")]
    FrameCount,
    #[error("a message has more than {MESSAGE_BYTES_MAX} bytes")]
    MessageLength,
    #[error("no greeting within {GREETING_LIMIT:?}")]
    NoGreeting,
    #[error("no memory for a message within {MEMORY_LIMIT:?}: other messages hold it")]
    NoMemory,
    #[error("a message was not complete within {MESSAGE_LIMIT:?}")]
    MessageLate,
}

/// What all connections share.
struct Gate {
    inner: SocketAddr,
    pieces: Arc<Semaphore>,
    by_address: Mutex<HashMap<IpAddr, Address>>,
    log: LogLimit,
}

/// What the connections of one address share.
struct Address {
    open: usize,
    pieces: Arc<Semaphore>,
}

/// One connection of an address, counted until it is dropped.
struct Counted {
    gate: Arc<Gate>,
    address: IpAddr,
    memory: Memory,
}

/// Where a connection's messages get their memory: the pieces of its address, then those of all.
#[derive(Clone)]
struct Memory {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Pieces that a message holds until it has been forwarded.
#[derive(Default)]
struct Held {
    permits: Vec<OwnedSemaphorePermit>,
    pieces: usize,
}

/// Accepts on `public` without end and forwards to `inner`.
pub(crate) async fn run(tasks: Tasks, public: TcpListener, inner: SocketAddr) -> Infallible {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let gate = Arc::new(Gate {
        inner,
        pieces: Arc::new(Semaphore::new(PIECES_MAX)),
        by_address: Mutex::default(),
        log: LogLimit::default(),
    });
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        let slot = slot.expect("the semaphore is never closed");
        let Ok((peer, from)) = public.accept().await else {
            // Out of file descriptors: others close in time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(counted) = gate.count(from.ip()) else {
            if let Some(left_out) = gate.log.allows() {
                tracing::warn!(%from, left_out, "closed a control connection: {CONNECTIONS_PER_ADDRESS_MAX} of its address are open");
            }
            continue;
        };
        tasks.spawn("control connection", async move {
            let gate = &counted.gate;
            if let Err(error) = gate.relay(peer, &counted.memory).await
                && let Some(left_out) = gate.log.allows()
            {
                tracing::warn!(%from, %error, left_out, "control connection closed");
            }
            drop((counted, slot));
        });
    }
}

// === impl Gate ===

impl Gate {
    /// Counts a connection, unless its address has as many as it may.
    fn count(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        let mut by_address = self.by_address.lock();
        let known = by_address.entry(address).or_insert_with(|| Address {
            open: 0,
            pieces: Arc::new(Semaphore::new(PIECES_PER_ADDRESS_MAX)),
        });
        if known.open == CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        known.open += 1;
        let memory = Memory {
            own: Arc::clone(&known.pieces),
            all: Arc::clone(&self.pieces),
        };
        Some(Counted {
            gate: Arc::clone(self),
            address,
            memory,
        })
    }

    async fn relay(&self, peer: TcpStream, memory: &Memory) -> Result<(), GateError> {
        tune(&peer)?;
        let (from_peer, mut to_peer) = peer.into_split();
        let mut from_peer = BufReader::new(from_peer);
        // Until a peer has greeted, it costs no second connection.
        let mut greeting = [0; GREETING_BYTES];
        let first = timeout(GREETING_LIMIT, from_peer.read_exact(&mut greeting[..1])).await;
        first.map_err(|_| GateError::NoGreeting)??;
        let socket = net::connect(self.inner).await?;
        socket.set_nodelay(true)?;
        let (mut from_socket, mut to_socket) = socket.into_split();
        let answers = async {
            tokio::io::copy(&mut from_socket, &mut to_peer).await?;
            Ok::<(), GateError>(())
        };
        let frames = forward(from_peer, greeting, &mut to_socket, memory);
        tokio::select! {
            ended = answers => ended,
            ended = frames => ended,
        }
    }
}

// === impl Counted ===

impl Drop for Counted {
    fn drop(&mut self) {
        let mut by_address = self.gate.by_address.lock();
        if let Some(known) = by_address.get_mut(&self.address) {
            known.open -= 1;
            if known.open == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

// === impl Memory ===

impl Memory {
    /// Lets a message that holds `held` grow to `bytes`; waits for others to give memory back.
    async fn grow(&self, held: &mut Held, bytes: usize) {
        let missing = (bytes / PIECE_BYTES).saturating_sub(held.pieces);
        let number = u32::try_from(missing).expect("a message is bounded");
        if number == 0 {
            return;
        }
        // All of a frame at once: two messages that each held a part would wait for each other.
        for pieces in [&self.own, &self.all] {
            let permits = Arc::clone(pieces).acquire_many_owned(number).await;
            held.permits
                .push(permits.expect("the semaphores are never closed"));
        }
        held.pieces += missing;
    }
}

/// Forwards greeting, whose first byte is there, and messages until the peer closes.
async fn forward<R, W>(
    mut peer: R,
    mut greeting: [u8; GREETING_BYTES],
    socket: &mut W,
    memory: &Memory,
) -> Result<(), GateError>
where
    R: AsyncRead + Unpin,
    W: tokio::io::AsyncWrite + Unpin,
{
    let rest = timeout(GREETING_LIMIT, peer.read_exact(&mut greeting[1..])).await;
    rest.map_err(|_| GateError::NoGreeting)??;
    socket.write_all(&greeting).await?;
    // The first message is the handshake's.
    let mut idle = Some(GREETING_LIMIT);
    let mut message = Vec::new();
    loop {
        let flags = next_flags(&mut peer);
        let flags = match idle.take() {
            Some(limit) => timeout(limit, flags)
                .await
                .map_err(|_| GateError::NoGreeting)??,
            None => flags.await?,
        };
        let Some(flags) = flags else {
            return Ok(());
        };
        let Some(held) = read_message(&mut peer, flags, &mut message, memory).await? else {
            return Ok(());
        };
        socket.write_all(&message).await?;
        // A peer that says nothing more keeps none of it.
        message.clear();
        message.shrink_to(PIECE_BYTES);
        drop(held);
    }
}

/// Reads the rest of a message that begins with `flags`; `None` where the peer has closed. What it holds of the memory
/// for messages goes back with what is returned. Waiting for that memory is not the peer's delay.
async fn read_message<R: AsyncRead + Unpin>(
    peer: &mut R,
    mut flags: u8,
    message: &mut Vec<u8>,
    memory: &Memory,
) -> Result<Option<Held>, GateError> {
    let mut held = Held::default();
    let mut deadline = Instant::now() + MESSAGE_LIMIT;
    for _ in 0..FRAMES_MAX {
        message.push(flags);
        let len = if flags & FLAG_LONG == 0 {
            let len = within(deadline, peer.read_u8()).await??;
            message.push(len);
            u64::from(len)
        } else {
            let len = within(deadline, peer.read_u64()).await??;
            message.extend(len.to_be_bytes());
            len
        };
        if len > FRAME_BYTES_MAX as u64 {
            return Err(GateError::FrameLength(len));
        }
        let bytes = message.len() + usize::try_from(len).unwrap_or(usize::MAX);
        if bytes > MESSAGE_BYTES_MAX {
            return Err(GateError::MessageLength);
        }
        let waits_since = Instant::now();
        let grown = timeout(MEMORY_LIMIT, memory.grow(&mut held, bytes)).await;
        grown.map_err(|_| GateError::NoMemory)?;
        deadline += waits_since.elapsed();
        let mut frame = (&mut *peer).take(len);
        let read = within(deadline, frame.read_to_end(message)).await??;
        if read as u64 != len {
            return Ok(None);
        }
        if flags & FLAG_MORE == 0 {
            return Ok(Some(held));
        }
        match within(deadline, next_flags(peer)).await?? {
            Some(next) => flags = next,
            None => return Ok(None),
        }
    }
    Err(GateError::FrameCount)
}

async fn within<T>(deadline: Instant, part: impl Future<Output = T>) -> Result<T, GateError> {
    let part = timeout_at(deadline, part).await;
    part.map_err(|_| GateError::MessageLate)
}

/// Flags of the next frame; `None` where the peer has closed.
async fn next_flags<R: AsyncRead + Unpin>(peer: &mut R) -> Result<Option<u8>, GateError> {
    let mut flags = [0];
    let read = peer.read(&mut flags).await?;
    Ok((read == 1).then_some(flags[0]))
}

#[cfg(test)]
mod tests;
