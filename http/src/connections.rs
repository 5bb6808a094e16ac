//! The open connections: how many there may be, what each client owes, and which end for it.

use crate::metrics::{Ended, ListenerMetrics};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

/// How long clients may owe what, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. One more ends those that have waited the longest for their client's request, of the address
    /// with the most of those; where all are served or have only just begun to wait, it is answered 503.
    pub connections: usize,
    /// From a connection's beginning, or from its last answer, to the first byte of a request. Longer than proxies keep
    /// idle connections (60 s), which would send a request into one that closes.
    pub idle: Duration,
    /// From the first byte of a request to the end of its head.
    pub head: Duration,
    /// Between two pieces of a request's body.
    pub body: Duration,
    /// Between two pieces of an answer that the client takes.
    pub read: Duration,
}

/// A client that has just connected, or was just answered, is about to ask, and is not ended to make room. Its request may
/// be lost three times on the way: TCP sends it again after 0.2, 0.4 and 0.8 s.
const GRACE: Duration = Duration::from_millis(1500);
/// Connections that end at once to make room: looking for one looks at all of them.
const MADE_ROOM: usize = 32;
/// Failed handshakes are reported this often at most.
const STRANGERS_INTERVAL: Duration = Duration::from_secs(60);
/// Refusals under way at once; beyond, a connection is closed without a word.
const REFUSALS: usize = 64;

/// All connections of one listener.
pub(crate) struct Connections {
    limits: Limits,
    metrics: ListenerMetrics,
    began: Instant,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    refusals: AtomicU64,
    strangers: Mutex<Strangers>,
}

/// Clients whose handshake failed: the log has one line of many.
#[derive(Default)]
struct Strangers {
    count: u64,
    /// Of the latest.
    reason: String,
    reported: Option<Instant>,
}

/// One connection, as its I/O and its requests note it.
pub(crate) struct Connection {
    nr: u64,
    peer: IpAddr,
    table: Arc<Connections>,
    /// What the client owes towards its next request, and since when.
    request: AtomicU64,
    /// Since when it has not taken what was written; 0 while nothing waits.
    unread_since: AtomicU64,
    /// What the connection's task is asked to do, and how it is woken for that.
    order: AtomicU8,
    waker: AtomicWaker,
}

/// What a connection's task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Serve = 0,
    /// Finish the request that it serves, and close.
    Finish = 1,
    /// Close at once.
    Close = 2,
}

/// What a client owes. The low bits of `Connection::request`, below the time in milliseconds.
const SERVED: u64 = 0;
const IDLE: u64 = 1;
const HEAD: u64 = 2;
const KINDS: u64 = 4;

/// Whether there is room for another connection.
pub(crate) enum Room {
    For(Arc<Connection>),
    /// All are being served.
    Full(Refusal),
    /// Not even for an answer that says so.
    Swamped,
}

/// One answer that refuses a connection; counted while it is written.
pub(crate) struct Refusal(Arc<Connections>);

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            idle: Duration::from_secs(75),
            head: Duration::from_secs(20),
            body: Duration::from_secs(30),
            read: Duration::from_secs(60),
        }
    }
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limits: Limits, metrics: ListenerMetrics) -> Arc<Self> {
        Arc::new(Self {
            limits,
            metrics,
            began: Instant::now(),
            open: Mutex::default(),
            next: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            strangers: Mutex::default(),
        })
    }

    /// A place for a connection from `peer`.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Room {
        let mut open = self.open.lock();
        if open.len() >= self.limits.connections && !self.make_room(&mut open) {
            drop(open);
            return self.refuse();
        }
        self.metrics.open.inc();
        let nr = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            nr,
            peer,
            table: Arc::clone(self),
            request: AtomicU64::new(IDLE + self.millis() * KINDS),
            unread_since: AtomicU64::new(0),
            order: AtomicU8::new(Order::Serve as u8),
            waker: AtomicWaker::new(),
        });
        open.insert(nr, Arc::clone(&connection));
        Room::For(connection)
    }

    /// Ends some of the connections that wait for their clients, the longest first, of the address with the most of
    /// them; says whether there were any.
    fn make_room(&self, open: &mut HashMap<u64, Arc<Connection>>) -> bool {
        let now = self.millis();
        let mut waiting: HashMap<IpAddr, Vec<(u64, u64)>> = HashMap::new();
        for (nr, connection) in &*open {
            let (kind, since) = connection.owed();
            if kind != SERVED && u128::from(now.saturating_sub(since)) > GRACE.as_millis() {
                waiting
                    .entry(connection.peer)
                    .or_default()
                    .push((since, *nr));
            }
        }
        let Some(mut most) = waiting.into_values().max_by_key(Vec::len) else {
            return false;
        };
        most.sort_unstable();
        // The last ones of an address may be of clients that are just about to ask.
        let ends = most.len().div_ceil(4).min(MADE_ROOM);
        for (_, nr) in &most[..ends] {
            if let Some(connection) = open.remove(nr) {
                self.metrics.ended(Ended::Evicted);
                connection.give(Order::Close);
            }
        }
        true
    }

    fn refuse(self: &Arc<Self>) -> Room {
        let under_way = self.refusals.fetch_add(1, Ordering::Relaxed);
        let refusal = Refusal(Arc::clone(self));
        if under_way < REFUSALS as u64 {
            self.metrics.ended(Ended::Full);
            Room::Full(refusal)
        } else {
            self.metrics.ended(Ended::Swamped);
            Room::Swamped
        }
    }

    /// Ends the connections whose clients owe for too long.
    pub(crate) fn sweep(&self) {
        let now = self.millis();
        let Limits {
            idle, head, read, ..
        } = self.limits;
        let is_over =
            |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        self.open.lock().retain(|_, connection| {
            let (kind, since) = connection.owed();
            let unread_since = connection.unread_since.load(Ordering::Relaxed);
            let ends = match kind {
                IDLE if is_over(since, idle) => Some(Ended::Idle),
                HEAD if is_over(since, head) => Some(Ended::Head),
                _ if unread_since > 0 && is_over(unread_since, read) => Some(Ended::Unread),
                _ => None,
            };
            if let Some(why) = ends {
                self.metrics.ended(why);
                connection.give(Order::Close);
            }
            ends.is_none()
        });
    }

    /// Reports failed handshakes, if there were any since the last report.
    pub(crate) fn report_strangers(&self) {
        let mut strangers = self.strangers.lock();
        let is_early = |at: Instant| at.elapsed() < STRANGERS_INTERVAL;
        if strangers.count == 0 || strangers.reported.is_some_and(is_early) {
            return;
        }
        let Strangers { count, reason, .. } = &*strangers;
        tracing::warn!(count, latest = reason, "handshakes failed");
        *strangers = Strangers {
            reported: Some(Instant::now()),
            ..Strangers::default()
        };
    }

    /// Lets each end: at once where no request came yet, else with its answer.
    pub(crate) fn finish(&self) {
        for connection in self.open.lock().values() {
            connection.give(Order::Finish);
        }
    }

    /// Never 0, so that 0 can stand for no time.
    fn millis(&self) -> u64 {
        let since = self.began.elapsed().as_millis();
        u64::try_from(since).unwrap_or(u64::MAX / KINDS).max(1)
    }
}

// === impl Connection ===

impl Connection {
    pub(crate) fn limits(&self) -> Limits {
        self.table.limits
    }

    /// Notes that bytes of a request came.
    pub(crate) fn received(&self) {
        if self.owed().0 == IDLE {
            self.owes(HEAD);
        }
    }

    /// Notes that a request's head is complete.
    pub(crate) fn serves(&self) {
        self.request.store(SERVED, Ordering::Relaxed);
    }

    /// Notes that the client owes its next request, for the last one was answered, or none has come yet.
    pub(crate) fn awaits_request(&self) {
        self.owes(IDLE);
    }

    /// Notes that the client takes no more for now.
    pub(crate) fn is_unread(&self) {
        if self.unread_since.load(Ordering::Relaxed) == 0 {
            let now = self.table.millis();
            self.unread_since.store(now, Ordering::Relaxed);
        }
    }

    /// Notes that the client took what was written.
    pub(crate) fn was_read(&self) {
        if self.unread_since.load(Ordering::Relaxed) != 0 {
            self.unread_since.store(0, Ordering::Relaxed);
        }
    }

    fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::Release);
        self.waker.wake();
    }

    /// What the connection's task, which `waker` wakes, is to do.
    pub(crate) fn order(&self, waker: &Waker) -> Order {
        self.waker.register(waker);
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::Finish,
            _ => Order::Close,
        }
    }

    fn owes(&self, kind: u64) {
        let owed = kind + self.table.millis() * KINDS;
        self.request.store(owed, Ordering::Relaxed);
    }

    /// What, and since when.
    fn owed(&self) -> (u64, u64) {
        let owed = self.request.load(Ordering::Relaxed);
        (owed % KINDS, owed / KINDS)
    }

    /// Notes that the client is none of the peers.
    pub(crate) fn is_strange(&self, error: &io::Error) {
        let mut strangers = self.table.strangers.lock();
        strangers.count += 1;
        strangers.reason = format!("{}: {error}", self.peer);
    }

    /// Notes that nothing of a request's body came for too long.
    pub(crate) fn body_is_late(&self) {
        self.table.metrics.bodies_late.inc();
    }

    /// Forgets a connection that has ended.
    pub(crate) fn close(&self) {
        self.table.metrics.open.dec();
        self.table.open.lock().remove(&self.nr);
    }
}

// === impl Refusal ===

impl Drop for Refusal {
    fn drop(&mut self) {
        self.0.refusals.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
