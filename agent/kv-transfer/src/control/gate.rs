//! What strangers send never reaches the ZMQ socket unchecked: its decoder reserves any length
//! a frame header states and keeps the parts of an endless multipart, so nine bytes could end the
//! process. The gate owns the public port, forwards whole frames within bounds to the socket's own
//! loopback port, and closes connections that break them.

use crate::net::{self, TcpListener, TcpStream};
use crate::tasks::Tasks;
use pd_protocol::control::guard::{FRAME_BYTES_MAX, FRAMES_MAX};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Semaphore;

/// ZMTP 3: length of the greeting, and flags of a frame. Source: RFC 23/ZMTP.
const GREETING_BYTES: usize = 64;
const FLAG_MORE: u8 = 1;
const FLAG_LONG: u8 = 2;
/// Control connections at once: one per peer rank.
const CONNECTIONS_MAX: usize = 4096;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("a frame states {0} bytes, beyond the bound of {FRAME_BYTES_MAX}")]
    FrameLength(u64),
    #[error("a message has more than {FRAMES_MAX} frames")]
    FrameCount,
}

/// Accepts on `public` without end and forwards to `inner`.
pub(crate) async fn run(tasks: Tasks, public: TcpListener, inner: SocketAddr) -> Infallible {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        let slot = slot.expect("the semaphore is never closed");
        let Ok((peer, from)) = public.accept().await else {
            // Out of file descriptors: others close in time.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        tasks.spawn("control connection", async move {
            if let Err(error) = relay(peer, inner).await {
                tracing::warn!(%from, %error, "control connection closed");
            }
            drop(slot);
        });
    }
}

async fn relay(peer: TcpStream, inner: SocketAddr) -> Result<(), GateError> {
    let socket = net::connect(inner).await?;
    peer.set_nodelay(true)?;
    socket.set_nodelay(true)?;
    let (from_peer, mut to_peer) = peer.into_split();
    let (mut from_socket, mut to_socket) = socket.into_split();
    let answers = async {
        tokio::io::copy(&mut from_socket, &mut to_peer).await?;
        Ok::<(), GateError>(())
    };
    let frames = forward(BufReader::new(from_peer), &mut to_socket);
    tokio::select! {
        ended = answers => ended,
        ended = frames => ended,
    }
}

/// Forwards greeting and frames until the peer closes.
async fn forward<R, W>(mut peer: R, socket: &mut W) -> Result<(), GateError>
where
    R: AsyncRead + Unpin,
    W: tokio::io::AsyncWrite + Unpin,
{
    let mut greeting = [0; GREETING_BYTES];
    peer.read_exact(&mut greeting).await?;
    socket.write_all(&greeting).await?;
    let mut frames = 0;
    let mut frame = Vec::new();
    while let Some(flags) = next_flags(&mut peer).await? {
        frame.clear();
        frame.push(flags);
        let len = if flags & FLAG_LONG == 0 {
            let len = peer.read_u8().await?;
            frame.push(len);
            u64::from(len)
        } else {
            let len = peer.read_u64().await?;
            frame.extend(len.to_be_bytes());
            len
        };
        if len > FRAME_BYTES_MAX as u64 {
            return Err(GateError::FrameLength(len));
        }
        frames += 1;
        if frames > FRAMES_MAX {
            return Err(GateError::FrameCount);
        }
        if flags & FLAG_MORE == 0 {
            frames = 0;
        }
        let head = frame.len();
        (&mut peer).take(len).read_to_end(&mut frame).await?;
        if (frame.len() - head) as u64 != len {
            return Ok(());
        }
        socket.write_all(&frame).await?;
    }
    Ok(())
}

/// Flags of the next frame; `None` where the peer has closed.
async fn next_flags<R: AsyncRead + Unpin>(peer: &mut R) -> Result<Option<u8>, GateError> {
    let mut flags = [0];
    let read = peer.read(&mut flags).await?;
    Ok((read == 1).then_some(flags[0]))
}

#[cfg(test)]
mod tests;
