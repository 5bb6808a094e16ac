//! What may happen to a deployment, and how it happens to the world.

use crate::network::{HostId, LinkQuality};
use crate::plan::{ACTIVE, pick};
use crate::software::{self, Shown};
use crate::world::World;
use parking_lot::Mutex;
use pd_protocol::workers::WorkerSpec;
use pd_router::Router;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failing {
    Router,
    Prefill(usize),
    Decode(usize),
    Client,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The process dies and is started again after `lasts`.
    Kill(Failing),
    /// The process is asked to end, and is started again after `lasts`, or when it has ended.
    Terminate(Failing),
    /// The host loses its power, likewise.
    PowerOff(Failing),
    /// The process stands still.
    Freeze(Failing),
    /// The wall clock jumps by so many milliseconds.
    ClockJump(Failing, i64),
    /// The process answers, but every request with an error, as when its device fails.
    Sicken(Failing),
    /// The router gives the worker nothing new.
    Cordon(Failing),
    /// The router forgets the worker, and gets it back.
    Remove(Failing),
    /// The process dies, and has no memory to start with while it lasts.
    Starve(Failing),
    /// Nothing gets from one to the other.
    CutOneWay(Failing, Failing),
    /// Nor back.
    Cut(Failing, Failing),
    /// The path in both directions is slow and loses packets.
    Worsen(Failing, Failing),
    /// One of the connections between them ends, as if by something on their path.
    Reset(Failing, Failing, u64),
}

/// What a process finds wrong with its host, shared with the software that runs there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ills {
    pub(crate) sick: Hosts,
    pub(crate) starved: Hosts,
}

/// Some hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(Arc<Mutex<BTreeSet<HostId>>>);

#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) kind: Kind,
}

/// Hosts of a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) router: HostId,
    pub(crate) prefills: Vec<HostId>,
    pub(crate) decodes: Vec<HostId>,
    pub(crate) client: HostId,
    /// Asks when everything is well again.
    pub(crate) late_client: HostId,
    pub(crate) stranger: HostId,
    pub(crate) ills: Ills,
    pub(crate) shown: Shown,
    /// Workers as the router has ever had them.
    pub(crate) specs: Arc<Mutex<BTreeMap<usize, WorkerSpec>>>,
}

/// Kinds of faults, some of which are drawn more often.
const KINDS: Range<u32> = 0..14;

// === impl Fault ===

impl Fault {
    /// The kinds of faults that one seed has. With few of them what needs several of a kind happens too.
    ///
    /// Source: Groce et al., Swarm Testing, ISSTA 2012.
    pub(crate) fn kinds(rng: &mut StdRng) -> Vec<u32> {
        let kinds: Vec<u32> = KINDS.filter(|_| rng.random_bool(0.5)).collect();
        if kinds.is_empty() {
            KINDS.collect()
        } else {
            kinds
        }
    }

    /// Longer than any peer waits for signs of life.
    pub(crate) const LONG_SILENCE: Duration = Duration::from_secs(60);

    /// The first decode stands still for long.
    pub(crate) fn frozen_decode(rng: &mut StdRng) -> Self {
        Self {
            at: Duration::from_millis(rng.random_range(0..ACTIVE.as_secs() * 1000)),
            lasts: Self::LONG_SILENCE,
            kind: Kind::Freeze(Failing::Decode(0)),
        }
    }

    pub(crate) fn draw(
        rng: &mut StdRng,
        (prefills, decodes): (usize, usize),
        kinds: &[u32],
    ) -> Self {
        let worker = |rng: &mut StdRng| {
            if rng.random_bool(0.5) {
                Failing::Prefill(rng.random_range(0..prefills))
            } else {
                Failing::Decode(rng.random_range(0..decodes))
            }
        };
        let process = |rng: &mut StdRng| {
            if rng.random_bool(0.1) {
                Failing::Router
            } else {
                worker(rng)
            }
        };
        let path = |rng: &mut StdRng| match rng.random_range(0..10) {
            0 => (Failing::Client, Failing::Router),
            1..4 => (worker(rng), Failing::Router),
            4..7 => (Failing::Router, worker(rng)),
            _ => (
                Failing::Prefill(rng.random_range(0..prefills)),
                Failing::Decode(rng.random_range(0..decodes)),
            ),
        };
        let kind = match *pick(rng, kinds) {
            0 | 1 => Kind::Kill(process(rng)),
            2 => Kind::PowerOff(process(rng)),
            3 => Kind::Freeze(process(rng)),
            4 => Kind::ClockJump(process(rng), rng.random_range(-3_600_000..3_600_000)),
            5 => {
                let (from, to) = path(rng);
                Kind::CutOneWay(from, to)
            }
            6 => {
                let (one, other) = path(rng);
                Kind::Cut(one, other)
            }
            7 => {
                let (one, other) = path(rng);
                Kind::Worsen(one, other)
            }
            8 => {
                let (one, other) = path(rng);
                Kind::Reset(one, other, rng.random())
            }
            9 => Kind::Sicken(worker(rng)),
            10 => Kind::Starve(worker(rng)),
            11 => Kind::Cordon(worker(rng)),
            12 => Kind::Remove(worker(rng)),
            _ => Kind::Terminate(process(rng)),
        };
        let lasts = *pick(rng, &[50, 500, 2_000, 8_000, 40_000, 60_000]);
        Self {
            at: Duration::from_millis(rng.random_range(0..ACTIVE.as_secs() * 1000)),
            lasts: Duration::from_millis(rng.random_range(1..=lasts)),
            kind,
        }
    }

    pub(crate) fn hurts(&self, who: Failing) -> bool {
        match self.kind {
            Kind::Kill(failing) | Kind::PowerOff(failing) | Kind::Freeze(failing) => failing == who,
            Kind::ClockJump(..)
            | Kind::Terminate(_)
            | Kind::Sicken(_)
            | Kind::Starve(_)
            | Kind::Cordon(_)
            | Kind::Remove(_) => false,
            Kind::CutOneWay(one, other)
            | Kind::Cut(one, other)
            | Kind::Worsen(one, other)
            | Kind::Reset(one, other, _) => {
                who == Failing::Router && [one, other].contains(&Failing::Client)
            }
        }
    }

    pub(crate) fn begin(&self, world: &mut World, places: &Places) {
        world.network.note(&("begins", &self.kind));
        let now = world.now;
        let until = now + self.lasts;
        match self.kind {
            Kind::Kill(who) => world.host(places.of(who)).kill(),
            Kind::Terminate(who) => world.host(places.of(who)).terminate(),
            Kind::PowerOff(who) => world.host(places.of(who)).power_off(now),
            Kind::Freeze(who) => world.host(places.of(who)).freeze(until),
            Kind::Sicken(who) => places.ills.sick.insert(places.of(who)),
            Kind::Cordon(who) => places.have_router(world, who, |router, worker| {
                let _ = router.set_cordoned(&worker.id, true);
            }),
            Kind::Remove(who) => places.have_router(world, who, |router, worker| {
                let _ = router.remove_worker(&worker.id);
            }),
            Kind::Starve(who) => {
                let host = places.of(who);
                world.host(host).kill();
                places.ills.starved.insert(host);
                world.boot(host);
            }
            Kind::ClockJump(who, by) => world.host(places.of(who)).skew_ms += by,
            Kind::CutOneWay(from, to) => {
                let links = &mut world.network.state.lock().links;
                links.cut(places.of(from), places.of(to), now);
            }
            Kind::Cut(one, other) => {
                let links = &mut world.network.state.lock().links;
                links.cut(places.of(one), places.of(other), now);
                links.cut(places.of(other), places.of(one), now);
            }
            Kind::Reset(one, other, which) => {
                let state = &mut *world.network.state.lock();
                state.reset_one(places.of(one), places.of(other), which);
            }
            Kind::Worsen(one, other) => {
                let bad = LinkQuality {
                    latency: Duration::from_millis(40),
                    jitter: Duration::from_millis(300),
                    loss: 0.2,
                    bytes_per_sec: 1 << 14,
                };
                let links = &mut world.network.state.lock().links;
                links.worsen(places.of(one), places.of(other), bad);
                links.worsen(places.of(other), places.of(one), bad);
            }
        }
    }

    pub(crate) fn end(&self, world: &mut World, places: &Places) {
        world.network.note(&("ends", &self.kind));
        match self.kind {
            Kind::Kill(who) | Kind::PowerOff(who) => world.boot(places.of(who)),
            Kind::Terminate(who) => {
                let now = world.now;
                world.host(places.of(who)).restart(now);
            }
            Kind::Freeze(_) | Kind::ClockJump(..) | Kind::Reset(..) => {}
            Kind::Sicken(who) => places.ills.sick.remove(places.of(who)),
            Kind::Cordon(who) => places.have_router(world, who, |router, worker| {
                let _ = router.set_cordoned(&worker.id, false);
            }),
            Kind::Remove(who) => places.have_router(world, who, |router, worker| {
                let added = router.add_worker(worker.clone());
                added.expect("the router takes back what it had");
            }),
            Kind::Starve(who) => {
                places.ills.starved.remove(places.of(who));
                world.boot(places.of(who));
            }
            Kind::CutOneWay(one, other) | Kind::Cut(one, other) | Kind::Worsen(one, other) => {
                let links = &mut world.network.state.lock().links;
                links.mend(places.of(one), places.of(other));
                links.mend(places.of(other), places.of(one));
            }
        }
    }
}

// === impl Hosts ===

impl Hosts {
    fn insert(&self, host: HostId) {
        self.0.lock().insert(host);
    }

    fn remove(&self, host: HostId) {
        self.0.lock().remove(&host);
    }

    pub(crate) fn has(&self, host: HostId) -> bool {
        self.0.lock().contains(&host)
    }
}

// === impl Places ===

impl Places {
    /// Hosts that boot when a run begins.
    pub(crate) fn at_first(&self) -> Vec<HostId> {
        let workers = self.prefills.iter().chain(&self.decodes);
        workers
            .chain([&self.router, &self.client, &self.stranger])
            .copied()
            .collect()
    }

    /// The `nr`th worker: first prefill, then decode.
    pub(crate) fn worker(&self, nr: usize) -> HostId {
        let mut workers = self.prefills.iter().chain(&self.decodes);
        *workers.nth(nr).expect("there are so many workers")
    }

    /// Has the router do something about a worker, as its admin API does.
    fn have_router(&self, world: &mut World, who: Failing, act: impl FnOnce(&Router, &WorkerSpec)) {
        let router = self.shown.lock().clone();
        let specs = &mut *self.specs.lock();
        let now = world.now;
        world.host(self.router).act(now, || {
            let Some(router) = router else {
                return;
            };
            for worker in router.workers() {
                specs.insert(software::nr_of(&worker.spec.url), worker.spec);
            }
            if let Some(worker) = specs.get(&self.of(who).0) {
                act(&router, worker);
            }
        });
    }

    pub(crate) fn of(&self, who: Failing) -> HostId {
        match who {
            Failing::Router => self.router,
            Failing::Prefill(nr) => self.prefills[nr],
            Failing::Decode(nr) => self.decodes[nr],
            Failing::Client => self.client,
        }
    }
}
