//! A network of hosts with one address each: TCP connections whose bytes arrive late, in order, or not at all.
//!
//! Bytes of a connection arrive in order, as TCP's do; those of two connections overtake each other by chance. A lost
//! packet is a delay, as a retransmission is. Behind a partition bytes wait; a connection with keepalive ends when its
//! path was cut for too long. A process that is killed closes its connections, a host without power says nothing.
//!
//! Life of a segment: `stream` puts it on its pipe's wire, with its arrival → an event in `State::events` → `delivery`
//! moves it into the reader's buffer, or lets it wait → the reader takes it, and the window opens again after a while.

mod connection;
mod delivery;
mod links;
mod stream;

pub(crate) use links::{LinkQuality, Links};
pub(crate) use stream::HostNetwork;

use crate::trace::Trace;
use connection::Connection;
use delivery::Event;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Index of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostId(pub(crate) usize);

/// Names a connection; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(u64);

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rng: StdRng,
    /// Time of the last delivery. Hosts may be a little ahead.
    pub(crate) now: Duration,
    pub(crate) hosts: Vec<Nic>,
    pub(crate) links: Links,
    pub(crate) trace: Trace,
    /// Hosts with tasks that were woken since they ran.
    pub(crate) woken: BTreeSet<HostId>,
    connections: BTreeMap<ConnectionId, Connection>,
    events: BTreeMap<(Duration, u64), Event>,
    next_event: u64,
    next_connection: u64,
}

/// A host as its peers see it.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) ip: IpAddr,
    /// How often it has started: what was sent to an earlier start is answered by a reset.
    pub(crate) boots: u32,
    /// `None` while it has power.
    pub(crate) off_since: Option<Duration>,
    listeners: BTreeMap<u16, Port>,
    next_port: u16,
}

/// A port that is listened at.
#[derive(Debug, Default)]
struct Port {
    backlog: VecDeque<ConnectionId>,
    waker: Option<Waker>,
}

/// First port of those that the system chooses.
const PORT_FIRST: u16 = 32_768;

// === impl Network ===

impl Network {
    pub(crate) fn new(seed: u64, links: Links, trace: Trace) -> Arc<Self> {
        let mut state = State {
            rng: StdRng::seed_from_u64(seed),
            now: Duration::ZERO,
            hosts: Vec::new(),
            links,
            trace,
            woken: BTreeSet::new(),
            connections: BTreeMap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            next_connection: 0,
        };
        state.schedule(delivery::SWEEP_INTERVAL, Event::Sweep);
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// A place for another host.
    pub(crate) fn add(&self) -> HostId {
        let mut state = self.state.lock();
        let id = HostId(state.hosts.len());
        let last = u8::try_from(id.0 + 1).expect("a simulation has few hosts");
        state.hosts.push(Nic {
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
            boots: 0,
            off_since: None,
            listeners: BTreeMap::new(),
            next_port: PORT_FIRST,
        });
        id
    }

    /// Ports at which a host listens.
    pub(crate) fn open_ports(&self, host: HostId) -> Vec<u16> {
        let state = self.state.lock();
        state.hosts[host.0].listeners.keys().copied().collect()
    }

    pub(crate) fn note(&self, entry: &(impl Debug + Hash)) {
        let state = &mut *self.state.lock();
        state.trace.note(state.now, entry);
    }
}

impl State {
    fn schedule(&mut self, at: Duration, event: Event) {
        self.events.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    pub(crate) fn next_event_at(&self) -> Option<Duration> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    fn host_of(&self, ip: IpAddr) -> Option<HostId> {
        self.hosts.iter().position(|nic| nic.ip == ip).map(HostId)
    }

    /// Whether nothing gets from one host to the other, and since when.
    fn cut_since(&self, from: HostId, to: HostId) -> Option<Duration> {
        let off = |host: HostId| self.hosts[host.0].off_since;
        let cuts = [off(from), off(to), self.links.cut_since(from, to)];
        cuts.into_iter().flatten().min()
    }

    pub(crate) fn is_cut_off(&self, from: HostId, to: HostId) -> bool {
        self.cut_since(from, to).is_some()
    }

    /// How long a packet takes that is sent now.
    fn delay(&mut self, from: HostId, to: HostId) -> Duration {
        self.links.quality(from, to).draw(&mut self.rng)
    }

    /// How many of `len` bytes go into one packet, or one read.
    fn piece(&mut self, len: usize) -> usize {
        let piece_max = self.links.piece_bytes_max;
        if len > 1 && self.rng.random_bool(self.links.short_share) {
            self.rng.random_range(1..=len.min(piece_max))
        } else {
            len.min(piece_max)
        }
    }
}
