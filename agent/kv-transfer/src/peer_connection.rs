//! TCP between managers: one liveness connection per registration, the data connections of the tcp
//! transport, and the reports of a worker's ranks. Each opens with a hello that says which session it serves, within TLS
//! where peers have a key; data connections that are not to be encrypted go without, and show no more than that they
//! know their session.

use crate::admission::{Admission, CONNECTIONS_PER_ADDRESS_MAX};
use crate::config::TransferConfig;
use crate::log_limit::LogLimit;
use crate::net::{self, KeepAlive, Stream, TcpStream};
use crate::tasks::Tasks;
use pd_identity::{Clients, Peers};
use pd_protocol::bounded::SESSION_ID_BYTES_MAX;
use pd_protocol::control::SessionId;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

/// First bytes of every connection: what is not ours is closed.
const MAGIC: &[u8; 8] = b"PDSVLNK1";
/// Connect and hello take at most this. Source: docs/sglang-protocol.md#timeouts.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections that may be without their hello at once: others wait their turn, a hello's timeout for each so many before
/// them. One address has a part of them only.
const GREETINGS_MAX: usize = 1024;

/// A peer whose host has vanished is noticed within 6 s, also while nothing is said.
const KEEPALIVE: KeepAlive = KeepAlive {
    idle: Duration::from_secs(3),
    interval: Duration::from_secs(1),
    vanished_after: Duration::from_secs(6),
    bounds_sent: true,
};

/// Bytes that a data connection hands to the kernel ahead of its peer, which the kernel doubles for its
/// own books: few enough that the peer's side still finds them in the cache (a third more GB/s between
/// two processes than with the kernel's own choice), and at a round trip of 200 us still 5 GB/s for each
/// of the streams.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConnectionKind {
    Liveness = 1,
    Data = 2,
    /// From a rank to its scheduler; the session is the rank's number.
    Polls = 3,
}

/// Which connections are encrypted.
#[derive(Clone)]
struct Secrecy {
    peers: Peers,
    /// There is a key, and data goes without.
    plain_data: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: ConnectionKind,
    pub(crate) session_id: SessionId,
}

/// Binds a connection port of a manager and passes every connection to `handle`. Returns the port.
pub(crate) async fn listen(
    tasks: &Tasks,
    transfer: &TransferConfig,
    handle: impl Fn(Hello, Stream) + Clone + Send + 'static,
) -> std::io::Result<u16> {
    let listener = net::listen(transfer.host).await?;
    let secrecy = Secrecy::of(transfer);
    let port = listener.local_addr()?.port();
    let greeting = tasks.clone();
    let log = Arc::new(LogLimit::default());
    let slots = Arc::new(Semaphore::new(GREETINGS_MAX));
    let admission = Admission::new();
    tasks.spawn_endless("connection listener", async move {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                // Out of file descriptors: others close in time.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Some(counted) = admission.count(from.ip()) else {
                if let Some(left_out) = log.allows() {
                    tracing::warn!(%from, left_out, "closed a connection: {CONNECTIONS_PER_ADDRESS_MAX} of its address have not said their hello");
                }
                continue;
            };
            let slot = Arc::clone(&slots).acquire_owned().await;
            let slot = slot.expect("the semaphore is never closed");
            let (handle, log, secrecy) = (handle.clone(), Arc::clone(&log), secrecy.clone());
            greeting.spawn("connection", async move {
                let greeted = tokio::time::timeout(HELLO_TIMEOUT, greeted(stream, &secrecy)).await;
                drop((counted, slot));
                let error = match greeted {
                    Ok(Ok((hello, stream))) => return handle(hello, stream),
                    Ok(Err(error)) => error,
                    Err(_) => std::io::ErrorKind::TimedOut.into(),
                };
                if let Some(left_out) = log.allows() {
                    tracing::warn!(%from, %error, left_out, "connection refused before its hello");
                }
            });
        }
    });
    Ok(port)
}

async fn greeted(stream: TcpStream, secrecy: &Secrecy) -> std::io::Result<(Hello, Stream)> {
    tune(&stream)?;
    let is_plain = secrecy.peers.identity().is_some() && {
        let mut first = [0];
        stream.peek(&mut first).await? == 1 && first[0] == MAGIC[0]
    };
    if is_plain && !secrecy.plain_data {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "it is not encrypted: give --disaggregation-tcp-plaintext to both sides, or to neither",
        ));
    }
    let mut stream = if is_plain {
        Stream::Plain(stream)
    } else {
        secrecy.peers.accept(stream, Clients::Required).await?
    };
    let hello = read_hello(&mut stream).await?;
    if is_plain && hello.kind != ConnectionKind::Data {
        let message = "only data may come unencrypted";
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            message,
        ));
    }
    Ok((hello, stream))
}

async fn read_hello<R: AsyncRead + Unpin>(stream: &mut R) -> std::io::Result<Hello> {
    let invalid = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic).await?;
    if &magic != MAGIC {
        return Err(invalid("not a connection of this protocol"));
    }
    let kind = match stream.read_u8().await? {
        1 => ConnectionKind::Liveness,
        2 => ConnectionKind::Data,
        3 => ConnectionKind::Polls,
        _ => return Err(invalid("unknown kind of connection")),
    };
    let len = usize::from(stream.read_u16_le().await?);
    if len > SESSION_ID_BYTES_MAX {
        return Err(invalid("session id too long"));
    }
    let mut session = vec![0; len];
    stream.read_exact(&mut session).await?;
    let session = String::from_utf8(session).map_err(|_| invalid("session id is not UTF-8"))?;
    let session_id = SessionId(session);
    Ok(Hello { kind, session_id })
}

/// The kernel answers for a frozen process, so this ends the connections of lost hosts only.
pub(crate) fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    net::set_keepalive(stream, KEEPALIVE)
}

/// Opens a connection to a peer.
pub(crate) async fn connect(
    transfer: &TransferConfig,
    (host, port): (&str, u16),
    kind: ConnectionKind,
    session_id: &SessionId,
) -> std::io::Result<Stream> {
    let secrecy = Secrecy::of(transfer);
    let opened = async {
        let stream = net::connect((host, port)).await?;
        tune(&stream)?;
        if kind == ConnectionKind::Data {
            net::set_send_buffer_size(&stream, SEND_BUFFER_BYTES)?;
        }
        let mut stream = if secrecy.plain_data && kind == ConnectionKind::Data {
            Stream::Plain(stream)
        } else {
            secrecy.peers.connect(stream).await?
        };
        let session_id = session_id.clone();
        let hello = Hello { kind, session_id }.encode()?;
        stream.write_all(&hello).await?;
        stream.flush().await?;
        Ok(stream)
    };
    tokio::time::timeout(HELLO_TIMEOUT, opened)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

// === impl Secrecy ===

impl Secrecy {
    fn of(transfer: &TransferConfig) -> Self {
        let has_key = transfer.peers.identity().is_some();
        Self {
            peers: transfer.peers.clone(),
            plain_data: has_key && !transfer.tcp_encryption,
        }
    }
}

// === impl Hello ===

impl Hello {
    fn encode(&self) -> std::io::Result<Vec<u8>> {
        let session = self.session_id.0.as_bytes();
        let len = u16::try_from(session.len()).map_err(std::io::Error::other)?;
        let mut hello = MAGIC.to_vec();
        hello.push(self.kind as u8);
        hello.extend(len.to_le_bytes());
        hello.extend(session);
        Ok(hello)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
