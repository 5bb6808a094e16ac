//! ZMTP 3.0 with the NULL mechanism, as far as PUSH and PULL speak it, over any stream of bytes.
//! Source: RFC 23/ZMTP. The reader bounds every length before it takes memory for it.

use crate::admission::{Held, Memory};
use crate::clock::Instant;
use bytes::Bytes;
use pd_protocol::control::guard::{FRAME_BYTES_MAX, FRAMES_MAX};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{timeout, timeout_at};

const GREETING_BYTES: usize = 64;
const MECHANISM: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const READY: &[u8] = b"\x05READY";
const SOCKET_TYPE: &[u8] = b"Socket-Type";
/// Flags of a frame.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
/// Longest command: its properties are names and types.
const COMMAND_BYTES_MAX: u64 = 4096;
/// Greeting and handshake take two round trips.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// A peer of ours says who it is right after its greeting: one that is silent for so long is none.
const FIRST_MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// From a message's first byte to its last: it is written in one go.
const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// How long a message waits for memory that others hold: they end within their own limits, unless they wait for
/// each other.
const MEMORY_LIMIT: Duration = Duration::from_secs(30);
/// Most bytes of a message: its largest list, and the rest, which is small.
pub(crate) const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX + (1 << 20);
/// Frames up to this are written together.
pub(crate) const TOGETHER_BYTES: usize = 64 << 10;

/// What a socket does; it talks to the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketType {
    Push,
    Pull,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ZmtpError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("no greeting within {GREETING_LIMIT:?}")]
    NoGreeting,
    #[error("no message within {FIRST_MESSAGE_LIMIT:?} of its greeting")]
    NoMessage,
    #[error("it does not greet as ZMTP 3 with the NULL mechanism")]
    Greeting,
    #[error("it does not shake hands as {}", .0.name())]
    Handshake(SocketType),
    #[error("a frame states {0} bytes, beyond the bound of {FRAME_BYTES_MAX}")]
    FrameLength(u64),
    #[error("a frame has flags {0:#04x}, which no message has")]
    Flags(u8),
    #[error("a message has more than {FRAMES_MAX} frames")]
    FrameCount,
    #[error("a message has more than {MESSAGE_BYTES_MAX} bytes")]
    MessageLength,
    #[error("no memory for a message within {MEMORY_LIMIT:?}: other messages hold it")]
    NoMemory,
    #[error("a message was not complete within {MESSAGE_LIMIT:?}")]
    MessageLate,
    #[error("it closed the connection in the middle of a message")]
    Half,
    #[error("a PULL socket sent something")]
    Spoke,
}

/// Greets the peer and shakes hands with it.
pub(crate) async fn greet<S>(stream: &mut S, own: SocketType) -> Result<(), ZmtpError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let greeted = async {
        let mut opening = greeting().to_vec();
        opening.extend(ready(own));
        stream.write_all(&opening).await?;
        stream.flush().await?;
        let mut greeting = [0; GREETING_BYTES];
        stream.read_exact(&mut greeting).await?;
        if greeting[0] != 0xff
            || greeting[9] != 0x7f
            || greeting[10] < 3
            || greeting[12..32] != MECHANISM
        {
            return Err(ZmtpError::Greeting);
        }
        let peer = own.other();
        let flags = stream.read_u8().await?;
        let len = frame_len(stream, flags).await?;
        if flags & !LONG != COMMAND || len > COMMAND_BYTES_MAX {
            return Err(ZmtpError::Handshake(peer));
        }
        let mut command = vec![0; usize::try_from(len).expect("a command is bounded")];
        stream.read_exact(&mut command).await?;
        match command.strip_prefix(READY) {
            Some(properties) if has_socket_type(properties, peer) => Ok(()),
            _ => Err(ZmtpError::Handshake(peer)),
        }
    };
    let greeted = timeout(GREETING_LIMIT, greeted).await;
    greeted.unwrap_or(Err(ZmtpError::NoGreeting))
}

fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xff;
    greeting[8] = 1;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..32].copy_from_slice(&MECHANISM);
    greeting
}

/// The command that ends a handshake: names and values, each after its length.
fn ready(own: SocketType) -> Vec<u8> {
    let name = own.name().as_bytes();
    let mut body = READY.to_vec();
    body.push(length(SOCKET_TYPE));
    body.extend(SOCKET_TYPE);
    body.extend([0, 0, 0, length(name)]);
    body.extend(name);
    let mut frame = vec![COMMAND, length(&body)];
    frame.extend(body);
    frame
}

fn length(short: &[u8]) -> u8 {
    u8::try_from(short.len()).expect("names of this file are short")
}

fn has_socket_type(mut properties: &[u8], expected: SocketType) -> bool {
    while let Some((&len, rest)) = properties.split_first() {
        let Some((name, rest)) = rest.split_at_checked(usize::from(len)) else {
            return false;
        };
        let Some((len, rest)) = rest.split_first_chunk() else {
            return false;
        };
        let len = usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
        let Some((value, rest)) = rest.split_at_checked(len) else {
            return false;
        };
        if name.eq_ignore_ascii_case(SOCKET_TYPE) {
            return value == expected.name().as_bytes();
        }
        properties = rest;
    }
    false
}

/// Appends a message as it is written.
pub(crate) fn put_message(bytes: &mut Vec<u8>, frames: &[Bytes]) {
    for (i, frame) in frames.iter().enumerate() {
        put_header(bytes, frame, i + 1 < frames.len());
        bytes.extend_from_slice(frame);
    }
}

fn put_header(bytes: &mut Vec<u8>, frame: &[u8], is_more_to_come: bool) {
    let more = if is_more_to_come { MORE } else { 0 };
    match u8::try_from(frame.len()) {
        Ok(len) => bytes.extend([more, len]),
        Err(_) => {
            bytes.push(more | LONG);
            bytes.extend((frame.len() as u64).to_be_bytes());
        }
    }
}

/// Writes one message.
pub(crate) async fn write_message<W: AsyncWrite + Unpin>(
    peer: &mut W,
    frames: &[Bytes],
) -> std::io::Result<()> {
    let mut together = Vec::new();
    for (i, frame) in frames.iter().enumerate() {
        put_header(&mut together, frame, i + 1 < frames.len());
        if together.len() + frame.len() <= TOGETHER_BYTES {
            together.extend_from_slice(frame);
        } else {
            peer.write_all(&together).await?;
            together.clear();
            peer.write_all(frame).await?;
        }
    }
    peer.write_all(&together).await?;
    peer.flush().await
}

/// Reads one message; `None` where the peer has closed. What it holds of the memory for messages goes back with what
/// is returned. Waiting for that memory is not the peer's delay.
pub(crate) async fn read_message<R: AsyncRead + Unpin>(
    peer: &mut R,
    memory: &Memory,
) -> Result<Option<(Vec<Bytes>, Held)>, ZmtpError> {
    match read_flags(peer).await? {
        Some(flags) => read_frames(peer, memory, flags).await.map(Some),
        None => Ok(None),
    }
}

/// Reads the first message after the greeting, which has to begin in time.
pub(crate) async fn read_first_message<R: AsyncRead + Unpin>(
    peer: &mut R,
    memory: &Memory,
) -> Result<Option<(Vec<Bytes>, Held)>, ZmtpError> {
    let flags = timeout(FIRST_MESSAGE_LIMIT, read_flags(peer)).await;
    match flags.map_err(|_| ZmtpError::NoMessage)?? {
        Some(flags) => read_frames(peer, memory, flags).await.map(Some),
        None => Ok(None),
    }
}

/// Flags of a message's first frame; `None` where the peer has closed.
async fn read_flags<R: AsyncRead + Unpin>(peer: &mut R) -> Result<Option<u8>, ZmtpError> {
    match peer.read_u8().await {
        Ok(flags) => Ok(Some(flags)),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads a message from behind the flags of its first frame.
async fn read_frames<R: AsyncRead + Unpin>(
    peer: &mut R,
    memory: &Memory,
    mut flags: u8,
) -> Result<(Vec<Bytes>, Held), ZmtpError> {
    let mut deadline = Instant::now() + MESSAGE_LIMIT;
    let (mut frames, mut bytes, mut held) = (Vec::new(), 0, Held::default());
    loop {
        if flags & !(MORE | LONG) != 0 {
            return Err(ZmtpError::Flags(flags));
        }
        if frames.len() == FRAMES_MAX {
            return Err(ZmtpError::FrameCount);
        }
        let len = within(deadline, frame_len(peer, flags)).await?;
        if len > FRAME_BYTES_MAX as u64 {
            return Err(ZmtpError::FrameLength(len));
        }
        bytes += usize::try_from(len).expect("a frame is bounded");
        if bytes > MESSAGE_BYTES_MAX {
            return Err(ZmtpError::MessageLength);
        }
        let waits_since = Instant::now();
        let grown = timeout(MEMORY_LIMIT, memory.grow(&mut held, bytes)).await;
        grown.map_err(|_| ZmtpError::NoMemory)?;
        deadline += waits_since.elapsed();
        // It takes memory as bytes come, not as they are stated.
        let mut frame = Vec::new();
        let read = async { Ok((&mut *peer).take(len).read_to_end(&mut frame).await?) };
        if within(deadline, read).await? as u64 != len {
            return Err(ZmtpError::Half);
        }
        frames.push(Bytes::from(frame));
        if flags & MORE == 0 {
            return Ok((frames, held));
        }
        flags = within(deadline, async { Ok(peer.read_u8().await?) }).await?;
    }
}

async fn frame_len<R: AsyncRead + Unpin>(peer: &mut R, flags: u8) -> Result<u64, ZmtpError> {
    let len = if flags & LONG == 0 {
        peer.read_u8().await.map(u64::from)
    } else {
        peer.read_u64().await
    };
    Ok(len?)
}

async fn within<T>(
    deadline: Instant,
    part: impl Future<Output = Result<T, ZmtpError>>,
) -> Result<T, ZmtpError> {
    let part = timeout_at(deadline, part).await;
    match part.unwrap_or(Err(ZmtpError::MessageLate)) {
        Err(ZmtpError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(ZmtpError::Half)
        }
        other => other,
    }
}

// === impl SocketType ===

impl SocketType {
    fn name(self) -> &'static str {
        match self {
            Self::Push => "PUSH",
            Self::Pull => "PULL",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Push => Self::Pull,
            Self::Pull => Self::Push,
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
