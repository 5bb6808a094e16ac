//! One TCP connection: two ends and a pipe from each to the other.

use super::HostId;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

/// End 0 connected, end 1 accepted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [End; 2],
    /// From the end of the same index to the other.
    pub(super) pipes: [Pipe; 2],
    pub(super) is_open: bool,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) host: HostId,
    /// The host's start that it belongs to.
    pub(super) boot: u32,
    pub(super) addr: SocketAddr,
    /// Its owner has dropped it.
    pub(super) is_dropped: bool,
    pub(super) error: Option<io::ErrorKind>,
    /// The connection ends when the other host was out of reach for so long.
    pub(super) vanishes_after: Option<Duration>,
    /// Of who reads, and of who connects or writes.
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// On their way, in order, each with its arrival.
    pub(super) wire: VecDeque<(Duration, Segment)>,
    /// Arrived and not read.
    pub(super) unread: VecDeque<u8>,
    /// Bytes that the writer may not use for others yet.
    pub(super) used: usize,
    pub(super) fin_sent: bool,
    pub(super) fin_arrived: bool,
    pub(super) last_arrival: Duration,
}

#[derive(Debug)]
pub(super) enum Segment {
    Data(Vec<u8>),
    Fin,
}

/// Bytes that a writer may be ahead of its reader: both sides' buffers.
pub(super) const WINDOW_BYTES: usize = 128 << 10;

// === impl Connection ===

impl Connection {
    pub(super) fn new(from: End, to: End) -> Self {
        Self {
            ends: [from, to],
            pipes: [Pipe::default(), Pipe::default()],
            is_open: false,
        }
    }

    /// Both owners have dropped it, and nothing is on its way.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.is_dropped)
            && self.pipes.iter().all(|pipe| pipe.wire.is_empty())
    }
}

// === impl End ===

impl End {
    pub(super) fn new(host: HostId, boot: u32, addr: SocketAddr) -> Self {
        Self {
            host,
            boot,
            addr,
            is_dropped: false,
            error: None,
            vanishes_after: None,
            reader: None,
            writer: None,
        }
    }

    /// Wakes its tasks.
    pub(super) fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }
}
