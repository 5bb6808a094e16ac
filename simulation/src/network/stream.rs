//! Streams and listeners of one host, as `pd-net` hands them to the product.

use super::connection::{Connection, End, Segment, WINDOW_BYTES};
use super::delivery::Event;
use super::{ConnectionId, HostId, Network, PORT_FIRST, Port, State};
use crate::host;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pd_net::simulation::{Listener, Stream};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The network as one start of a host has it.
#[derive(Clone, Debug)]
pub(crate) struct HostNetwork {
    pub(crate) network: Arc<Network>,
    pub(crate) host: HostId,
}

#[derive(Debug)]
struct StreamEnd {
    network: Arc<Network>,
    id: ConnectionId,
    side: usize,
    local: SocketAddr,
    peer: SocketAddr,
}

#[derive(Debug)]
struct Listening {
    network: Arc<Network>,
    host: HostId,
    boot: u32,
    local: SocketAddr,
}

// === impl HostNetwork ===

impl pd_net::simulation::Network for HostNetwork {
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<Arc<dyn Stream>>> {
        let stream = self.open(to);
        async move {
            let stream = stream?;
            poll_fn(|cx| stream.poll_open(cx)).await?;
            Ok(Arc::new(stream) as Arc<dyn Stream>)
        }
        .boxed()
    }

    fn bind(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        let state = &mut *self.network.state.lock();
        let nic = &mut state.hosts[self.host.0];
        let port = match at.port() {
            0 => nic.free_port(),
            port if nic.listeners.contains_key(&port) => {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            port => port,
        };
        nic.listeners.insert(port, Port::default());
        Ok(Arc::new(Listening {
            network: Arc::clone(&self.network),
            host: self.host,
            boot: nic.boots,
            local: SocketAddr::new(nic.ip, port),
        }))
    }
}

impl HostNetwork {
    /// Begins to connect.
    fn open(&self, to: SocketAddr) -> io::Result<StreamEnd> {
        let state = &mut *self.network.state.lock();
        let ip = to.ip();
        let target = if ip.is_loopback() || ip.is_unspecified() {
            Some(self.host)
        } else {
            state.host_of(ip)
        };
        let target = target.ok_or(io::ErrorKind::HostUnreachable)?;
        let nic = &mut state.hosts[self.host.0];
        let local = SocketAddr::new(nic.ip, nic.free_port());
        let boots = nic.boots;
        let peer = SocketAddr::new(state.hosts[target.0].ip, to.port());
        let id = ConnectionId(state.next_connection);
        state.next_connection += 1;
        let from = End::new(self.host, boots, local);
        let to = End::new(target, state.hosts[target.0].boots, peer);
        state.connections.insert(id, Connection::new(from, to));
        let at = host::now(state) + state.delay(self.host, target);
        state.schedule(at, Event::Syn(id));
        Ok(StreamEnd {
            network: Arc::clone(&self.network),
            id,
            side: 0,
            local,
            peer,
        })
    }
}

impl super::Nic {
    fn free_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(PORT_FIRST);
        port
    }
}

// === impl StreamEnd ===

impl StreamEnd {
    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.network.state.lock();
        let connection = connection(state, self.id)?;
        let end = &mut connection.ends[0];
        if let Some(error) = end.error {
            return Poll::Ready(Err(error.into()));
        }
        if connection.is_open {
            return Poll::Ready(Ok(()));
        }
        end.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn read(&self, state: &mut State, len: usize) -> io::Result<Vec<u8>> {
        let len = state.piece(len);
        let connection = connection(state, self.id)?;
        let other = 1 - self.side;
        let pipe = &mut connection.pipes[other];
        let (from, to) = (connection.ends[self.side].host, connection.ends[other].host);
        // What has arrived is read before the connection's end.
        if !pipe.unread.is_empty() {
            let len = len.min(pipe.unread.len());
            let bytes: Vec<u8> = pipe.unread.drain(..len).collect();
            let at = host::now(state) + state.delay(from, to);
            state.schedule(at, Event::Window(self.id, other, len));
            return Ok(bytes);
        }
        match connection.ends[self.side].error {
            Some(error) => Err(error.into()),
            None if pipe.fin_arrived => Ok(Vec::new()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn fin(&self, state: &mut State) {
        let now = host::now(state);
        let Some(connection) = state.connections.get_mut(&self.id) else {
            return;
        };
        let [from, to] = [self.side, 1 - self.side].map(|side| connection.ends[side].host);
        let pipe = &mut connection.pipes[self.side];
        if !std::mem::replace(&mut pipe.fin_sent, true) {
            let at = (now + state.delay(from, to))
                .max(state.connections[&self.id].pipes[self.side].last_arrival);
            self.put(state, at, Segment::Fin);
        }
    }

    fn put(&self, state: &mut State, at: Duration, segment: Segment) {
        let connection = state.connections.get_mut(&self.id);
        let pipe = &mut connection.expect("the caller has found it").pipes[self.side];
        pipe.last_arrival = at;
        pipe.wire.push_back((at, segment));
        state.schedule(at, Event::Segment(self.id, self.side));
    }
}

fn connection(state: &mut State, id: ConnectionId) -> io::Result<&mut Connection> {
    let connection = state.connections.get_mut(&id);
    connection.ok_or_else(|| io::ErrorKind::ConnectionReset.into())
}

impl Stream for StreamEnd {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.network.state.lock();
        match self.read(state, buf.remaining()) {
            Ok(bytes) => {
                buf.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let connection = connection(state, self.id)?;
                connection.ends[self.side].reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.network.state.lock();
        let connection = connection(state, self.id)?;
        let pipe = &connection.pipes[1 - self.side];
        let is_over = pipe.fin_arrived && pipe.unread.is_empty();
        if let Some(error) = connection.ends[self.side].error {
            return Poll::Ready(Err(error.into()));
        }
        if pipe.unread.is_empty() && !is_over {
            connection.ends[self.side].reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (front, _) = pipe.unread.as_slices();
        buf.put_slice(&front[..front.len().min(buf.remaining())]);
        Poll::Ready(Ok(()))
    }

    fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.read(&mut self.network.state.lock(), buf.len())?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.network.state.lock();
        let piece = state.piece(buf.len());
        let connection = connection(state, self.id)?;
        if let Some(error) = connection.ends[self.side].error {
            return Poll::Ready(Err(error.into()));
        }
        let pipe = &mut connection.pipes[self.side];
        if pipe.fin_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let len = piece.min(WINDOW_BYTES - pipe.used);
        if len == 0 && !buf.is_empty() {
            connection.ends[self.side].writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        pipe.used += len;
        let last_arrival = pipe.last_arrival;
        let [from, to] = [self.side, 1 - self.side].map(|side| connection.ends[side].host);
        let at = (host::now(state) + state.delay(from, to)).max(last_arrival);
        let at = at + state.links.quality(from, to).busy(len);
        self.put(state, at, Segment::Data(buf[..len].to_vec()));
        Poll::Ready(Ok(len))
    }

    fn shutdown(&self) {
        self.fin(&mut self.network.state.lock());
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn vanishes_after(&self, limit: Duration) {
        let state = &mut *self.network.state.lock();
        if let Ok(connection) = connection(state, self.id) {
            connection.ends[self.side].vanishes_after = Some(limit);
        }
    }
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        let state = &mut *self.network.state.lock();
        let Some(connection) = state.connections.get_mut(&self.id) else {
            return;
        };
        connection.ends[self.side].is_dropped = true;
        let host = connection.ends[self.side].host;
        let is_broken = connection.ends[self.side].error.is_some();
        let is_unread = !connection.pipes[1 - self.side].unread.is_empty();
        if state.hosts[host.0].off_since.is_some() || is_broken {
            connection.pipes[self.side].wire.clear();
        } else if is_unread {
            // As the kernel does where bytes were not read.
            state.send_reset(self.id, 1 - self.side);
        } else {
            self.fin(state);
        }
        state.forget_if_over(self.id);
    }
}

// === impl Listening ===

impl Listener for Listening {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Arc<dyn Stream>, SocketAddr)>> {
        let state = &mut *self.network.state.lock();
        let listeners = &mut state.hosts[self.host.0].listeners;
        let port = listeners.get_mut(&self.local.port());
        let port = port.ok_or(io::ErrorKind::NotConnected)?;
        while let Some(id) = port.backlog.pop_front() {
            let Some(connection) = state.connections.get_mut(&id) else {
                continue;
            };
            let peer = connection.ends[0].addr;
            let stream = StreamEnd {
                network: Arc::clone(&self.network),
                id,
                side: 1,
                local: self.local,
                peer,
            };
            return Poll::Ready(Ok((Arc::new(stream), peer)));
        }
        port.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let state = &mut *self.network.state.lock();
        let nic = &mut state.hosts[self.host.0];
        if nic.boots != self.boot {
            return;
        }
        let is_off = nic.off_since.is_some();
        let port = nic.listeners.remove(&self.local.port());
        for id in port.into_iter().flat_map(|port| port.backlog) {
            if let Some(connection) = state.connections.get_mut(&id) {
                connection.ends[1].is_dropped = true;
                if !is_off {
                    state.send_reset(id, 0);
                }
            }
        }
    }
}
