//! What arrives: each event at its time, or later where the path is cut.

use super::connection::{Connection, Segment};
use super::{ConnectionId, HostId, State};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A connection's first packet arrives at its listener.
    Syn(ConnectionId),
    /// The answer to it, at the one who connects.
    SynAck(ConnectionId),
    Refused(ConnectionId),
    /// Something arrives on the pipe from this end.
    Segment(ConnectionId, usize),
    /// The writer at this end may have so many bytes more on their way.
    Window(ConnectionId, usize, usize),
    /// The connection is unknown at the other end than this.
    Reset(ConnectionId, usize),
    /// Connections over paths that are cut for too long end.
    Sweep,
}

/// What of it is traced.
#[derive(Debug, Hash)]
enum Arrival {
    Open(ConnectionId, HostId, HostId),
    Refused(ConnectionId, HostId, HostId),
    Data(ConnectionId, HostId, HostId, usize, u64),
    Fin(ConnectionId, HostId, HostId),
    Reset(ConnectionId, HostId, HostId),
    Vanished(ConnectionId, HostId, HostId),
}

pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// What waits for a cut path is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// A packet that opens a connection is sent again. Source: RFC 6298.
const SYN_INTERVAL: Duration = Duration::from_secs(1);
/// Connections that wait to be accepted.
const BACKLOG_MAX: usize = 1024;

// === impl State ===

impl State {
    /// Hosts for which something arrives until `now`.
    pub(crate) fn targets(&self, now: Duration) -> BTreeSet<HostId> {
        let due = self.events.range(..=(now, u64::MAX));
        due.filter_map(|(_, event)| self.target(*event)).collect()
    }

    fn target(&self, event: Event) -> Option<HostId> {
        let (id, side) = match event {
            Event::Syn(id) => (id, 1),
            Event::SynAck(id) | Event::Refused(id) => (id, 0),
            Event::Segment(id, from) => (id, 1 - from),
            Event::Window(id, side, _) | Event::Reset(id, side) => (id, side),
            Event::Sweep => return None,
        };
        Some(self.connections.get(&id)?.ends[side].host)
    }

    /// Lets everything arrive that does until `now`.
    pub(crate) fn deliver(&mut self, now: Duration) {
        self.now = now;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let event = entry.remove();
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Syn(id) => self.syn(id),
            Event::SynAck(id) => self.answer(id, event),
            Event::Refused(id) => self.answer(id, event),
            Event::Segment(id, from) => self.segment(id, from),
            Event::Window(id, writer, bytes) => self.window(id, writer, bytes),
            Event::Reset(id, to) => self.reset(id, to),
            Event::Sweep => self.sweep(),
        }
    }

    /// Hosts of the end `from` and of the other.
    fn hosts_from(&self, id: ConnectionId, from: usize) -> Option<(HostId, HostId)> {
        let ends = &self.connections.get(&id)?.ends;
        Some((ends[from].host, ends[1 - from].host))
    }

    /// Puts an event off while its path is cut.
    fn is_cut(&mut self, event: Event, from: HostId, to: HostId, retry: Duration) -> bool {
        let is_cut = self.cut_since(from, to).is_some();
        if is_cut {
            self.schedule(self.now + retry, event);
        }
        is_cut
    }

    fn syn(&mut self, id: ConnectionId) {
        let Some((from, to)) = self.hosts_from(id, 0) else {
            return;
        };
        let connection = &self.connections[&id];
        if connection.ends[0].is_dropped {
            self.connections.remove(&id);
            return;
        }
        let port = connection.ends[1].addr.port();
        if self.is_cut(Event::Syn(id), from, to, SYN_INTERVAL) {
            return;
        }
        let at = self.now + self.delay(to, from);
        let nic = &mut self.hosts[to.0];
        let boots = nic.boots;
        let listener = nic.listeners.get_mut(&port);
        let Some(port) = listener.filter(|port| port.backlog.len() < BACKLOG_MAX) else {
            self.trace.note(self.now, &Arrival::Refused(id, from, to));
            return self.schedule(at, Event::Refused(id));
        };
        port.backlog.push_back(id);
        if let Some(waker) = port.waker.take() {
            waker.wake();
        }
        self.woken.insert(to);
        self.trace.note(self.now, &Arrival::Open(id, from, to));
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.ends[1].boot = boots;
        }
        self.schedule(at, Event::SynAck(id));
    }

    fn answer(&mut self, id: ConnectionId, event: Event) {
        let Some((to, from)) = self.hosts_from(id, 0) else {
            return;
        };
        if self.is_cut(event, from, to, RETRY_INTERVAL) {
            return;
        }
        let connection = self.connections.get_mut(&id).expect("looked up above");
        let end = &mut connection.ends[0];
        if let Event::Refused(_) = event {
            end.error = Some(io::ErrorKind::ConnectionRefused);
            connection.ends[1].is_dropped = true;
        } else {
            connection.is_open = true;
        }
        connection.ends[0].wake();
        self.woken.insert(to);
        if self.connections[&id].ends[0].is_dropped {
            self.send_reset(id, 1);
        }
    }

    fn segment(&mut self, id: ConnectionId, from: usize) {
        let Some((source, target)) = self.hosts_from(id, from) else {
            return;
        };
        if self.is_cut(Event::Segment(id, from), source, target, RETRY_INTERVAL) {
            return;
        }
        let now = self.now;
        let boots = self.hosts[target.0].boots;
        let connection = self.connections.get_mut(&id).expect("looked up above");
        let Connection { ends, pipes, .. } = connection;
        let (pipe, end) = (&mut pipes[from], &mut ends[1 - from]);
        let is_known = !end.is_dropped && end.boot == boots;
        let mut is_refused = false;
        while pipe.wire.front().is_some_and(|(at, _)| *at <= now) {
            let (_, segment) = pipe.wire.pop_front().expect("there is a front");
            match segment {
                Segment::Data(bytes) => {
                    is_refused |= !is_known;
                    let mut hasher = DefaultHasher::new();
                    bytes.hash(&mut hasher);
                    let arrival = Arrival::Data(id, source, target, bytes.len(), hasher.finish());
                    self.trace.note(now, &arrival);
                    pipe.unread.extend(bytes);
                }
                Segment::Fin => {
                    self.trace.note(now, &Arrival::Fin(id, source, target));
                    pipe.fin_arrived = true;
                }
            }
        }
        if let Some(reader) = end.reader.take() {
            reader.wake();
        }
        self.woken.insert(target);
        if is_refused {
            self.send_reset(id, from);
        }
        self.forget_if_over(id);
    }

    fn window(&mut self, id: ConnectionId, writer: usize, bytes: usize) {
        let Some((to, from)) = self.hosts_from(id, writer) else {
            return;
        };
        if self.is_cut(Event::Window(id, writer, bytes), from, to, RETRY_INTERVAL) {
            return;
        }
        let connection = self.connections.get_mut(&id).expect("looked up above");
        connection.pipes[writer].used -= bytes;
        if let Some(writer) = connection.ends[writer].writer.take() {
            writer.wake();
        }
        self.woken.insert(to);
    }

    /// Resets the end `to`: the other does not know the connection.
    pub(super) fn send_reset(&mut self, id: ConnectionId, to: usize) {
        let Some((target, source)) = self.hosts_from(id, to) else {
            return;
        };
        let at = self.now + self.delay(source, target);
        self.schedule(at, Event::Reset(id, to));
    }

    fn reset(&mut self, id: ConnectionId, to: usize) {
        let Some((target, source)) = self.hosts_from(id, to) else {
            return;
        };
        // It is not sent again; the next packet is answered by another.
        if self.cut_since(source, target).is_none() {
            self.trace
                .note(self.now, &Arrival::Reset(id, source, target));
            self.break_end(id, to, io::ErrorKind::ConnectionReset);
        }
    }

    /// Ends one of the connections between two hosts, at both ends.
    pub(crate) fn reset_one(&mut self, one: HostId, other: HostId, which: u64) {
        let between = |connection: &Connection| {
            let ends = connection.ends.each_ref().map(|end| end.host);
            connection.is_open && (ends == [one, other] || ends == [other, one])
        };
        let all = self.connections.iter();
        let all: Vec<ConnectionId> = all
            .filter_map(|(id, connection)| between(connection).then_some(*id))
            .collect();
        let Some(which) = which.checked_rem(all.len() as u64) else {
            return;
        };
        let id = all[usize::try_from(which).unwrap_or_default()];
        self.trace.note(self.now, &Arrival::Reset(id, one, other));
        for side in 0..2 {
            self.break_end(id, side, io::ErrorKind::ConnectionReset);
        }
    }

    fn break_end(&mut self, id: ConnectionId, side: usize, error: io::ErrorKind) {
        // Its other end may have been the last that it was kept for.
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let end = &mut connection.ends[side];
        end.error.get_or_insert(error);
        end.wake();
        let host = end.host;
        connection.pipes[side].wire.clear();
        self.woken.insert(host);
        self.forget_if_over(id);
    }

    pub(super) fn forget_if_over(&mut self, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(Connection::is_over) {
            self.connections.remove(&id);
        }
    }

    fn sweep(&mut self) {
        let now = self.now;
        let mut vanished = Vec::new();
        for (id, connection) in &self.connections {
            for (side, end) in connection.ends.iter().enumerate() {
                let other = connection.ends[1 - side].host;
                let cuts = [
                    self.cut_since(end.host, other),
                    self.cut_since(other, end.host),
                ];
                let limit = end.vanishes_after.filter(|_| end.error.is_none());
                let cut = cuts.into_iter().flatten().min();
                // A host that has started again answers a probe with a reset.
                let other_end = &connection.ends[1 - side];
                let is_another = other_end.boot != self.hosts[other.0].boots;
                if limit.is_some() && connection.is_open && is_another && cut.is_none() {
                    vanished.push((*id, side, end.host, other));
                    continue;
                }
                if let (Some(limit), Some(since)) = (limit, cut)
                    && now - since >= limit
                {
                    vanished.push((*id, side, end.host, other));
                }
            }
        }
        for (id, side, host, other) in vanished {
            self.trace.note(now, &Arrival::Vanished(id, host, other));
            self.break_end(id, side, io::ErrorKind::TimedOut);
        }
        self.schedule(now + SWEEP_INTERVAL, Event::Sweep);
    }
}
