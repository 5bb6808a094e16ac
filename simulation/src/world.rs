//! The world: hosts, the network between them, and time.
//!
//! Time moves to the next arrival, at most by a step, in whole milliseconds, tokio's unit. A host runs when
//! something arrives for it, and every few milliseconds for its timers; in between it lags behind, which only makes what
//! it sends arrive a little later. So a quiet second costs little, and the order is the same every time.

use crate::host::{Host, Software};
use crate::network::{HostId, Links, Network};
use crate::trace::Trace;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct World {
    pub(crate) network: Arc<Network>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) now: Duration,
    /// When every host has last run.
    all_ran: Duration,
}

/// Tokio's timers have this resolution.
const TICK: Duration = Duration::from_millis(1);
/// Every host runs this often, so timers are late by no more.
const STEP: Duration = Duration::from_millis(20);

// === impl World ===

impl World {
    pub(crate) fn new(seed: u64, links: Links, trace: Trace) -> Self {
        Self {
            network: Network::new(seed, links, trace),
            hosts: Vec::new(),
            now: Duration::ZERO,
            all_ran: Duration::ZERO,
        }
    }

    /// A host that is not booted yet.
    pub(crate) fn add(&mut self, software: Software) -> HostId {
        let host = Host::new(&self.network, software);
        let id = host.id();
        self.hosts.push(host);
        id
    }

    pub(crate) fn host(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0]
    }

    pub(crate) fn boot(&mut self, id: HostId) {
        let now = self.now;
        self.host(id).boot(now);
    }

    /// Whether a host runs, and its packets and another's reach each other.
    pub(crate) fn reaches(&self, one: HostId, other: HostId) -> bool {
        let state = self.network.state.lock();
        let runs = |id: HostId| {
            let host = &self.hosts[id.0];
            host.is_running() && !host.is_frozen()
        };
        let is_cut = state.is_cut_off(one, other) || state.is_cut_off(other, one);
        runs(one) && runs(other) && !is_cut
    }

    /// Whether a host runs that can hear nothing of the other.
    pub(crate) fn is_deaf_to(&self, host: HostId, other: HostId) -> bool {
        let state = self.network.state.lock();
        let runs = |id: HostId| self.hosts[id.0].is_running() && !self.hosts[id.0].is_frozen();
        let is_cut = state.is_cut_off(host, other) && state.is_cut_off(other, host);
        runs(host) && (!runs(other) || is_cut)
    }

    /// Lets time pass until `to`, in whole ticks.
    pub(crate) fn run(&mut self, to: Duration) {
        while self.now < to {
            self.step(to);
        }
    }

    /// Hosts for which something arrives, or has arrived, run up to that moment; then it arrives; what they do about it
    /// they do in the next step.
    fn step(&mut self, to: Duration) {
        let horizon = (self.all_ran + STEP).max(self.now + TICK).min(to);
        let mut due = std::mem::take(&mut self.network.state.lock().woken);
        if due.is_empty() {
            let next = self.network.state.lock().next_event_at();
            let next = next.map_or(horizon, whole_ticks);
            self.now = next.clamp(self.now + TICK, horizon);
        } else {
            self.now = (self.now + TICK).min(horizon);
        }
        due.extend(self.network.state.lock().targets(self.now));
        let runs_all = self.now == horizon;
        for host in &mut self.hosts {
            if runs_all || due.contains(&host.id()) {
                host.run(self.now);
            }
        }
        if runs_all {
            self.all_ran = self.now;
        }
        self.network.state.lock().deliver(self.now);
    }
}

/// The same or the next whole tick.
fn whole_ticks(at: Duration) -> Duration {
    let ticks = at.as_nanos().div_ceil(TICK.as_nanos());
    TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}
