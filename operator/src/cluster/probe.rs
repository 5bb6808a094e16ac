//! Sees that KV moves between a new worker and its peers before the worker counts.
//!
//! A worker can pass its own health checks and still reach no peer: another fabric, a firewall, a
//! NIC without its link. Its readiness gate then must not latch, or a rollout would go on and take
//! the workers away that do serve. Where requests came first, the worker's own count of KV bytes
//! says it; else one token over the real path (`token`) does.
//!
//! A probe passes once KV moved; or where it cannot: the worker has no peer of its kind, none that could be asked came
//! within 30 s, or a worker asks for a key, which only routers hold.

mod token;

use crate::controller::build::component::Component;
use crate::http_client::HttpClient;
use crate::scrape;
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long is a peer waited for that no router knows yet.
const LIMIT: Duration = Duration::from_secs(30);
/// Pause after a probe that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How far a worker's probe has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    /// Not yet at its end.
    Runs,
    /// KV moved, or cannot be seen to move: see the module.
    Passed,
    /// What went wrong last, with whom.
    Failed(String),
}

/// A ready worker that stays, as far as a probe needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) component: Component,
    pub(crate) ip: IpAddr,
    /// Base URL of its HTTP API.
    pub(crate) url: String,
    /// Of a prefill worker; nothing where it hands KV over by `kv_transfer_params`, as vLLM does.
    pub(crate) bootstrap_port: Option<u16>,
    /// What its KV means; nothing while no router knows.
    pub(crate) kv_compat: Option<String>,
    /// A router sends requests to it.
    pub(crate) serves: bool,
}

/// Probes of a deployment's workers whose gate has not latched yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the pod's UID.
    probes: HashMap<String, Probe>,
    /// Distinguishes a probe from an earlier one of the same pod.
    next: u64,
}

#[derive(Debug)]
struct Probe {
    state: State,
    /// Of the probe before, until the next one ends.
    failure: Option<String>,
    /// The next one takes the next peer, for the fault may be the peer's.
    attempts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No peer could be asked yet, since then.
    Waits(Instant),
    Runs(u64),
    /// Until the next attempt.
    Rests(Instant),
    Passed,
}

// === impl Probes ===

impl Probes {
    /// How far the probe of `worker` has come; begins one if it is time. Workers take requests without a token, of
    /// peers or of anyone.
    pub(crate) fn probe(&self, client: &HttpClient, worker: &Worker, all: &[Worker]) -> Probed {
        let now = Instant::now();
        let mut known = self.known.lock();
        let Known { probes, next } = &mut *known;
        let probe = probes
            .entry(worker.uid.clone())
            .or_insert_with(|| Probe::new(now));
        let is_time = match probe.state {
            State::Waits(_) => true,
            State::Rests(until) => until <= now,
            State::Runs(_) | State::Passed => false,
        };
        if !is_time {
            return probe.outcome();
        }
        match choose(worker, all, probe.attempts) {
            Choice::Peer(peer) => {
                let nr = *next;
                *next += 1;
                probe.state = State::Runs(nr);
                probe.attempts += 1;
                let (client, worker, peer) = (client.clone(), worker.clone(), peer.clone());
                let uid = worker.uid.clone();
                let moving = async move { see_kv_move(&client, &worker, &peer).await };
                self.start(nr, uid, moving);
            }
            Choice::NotYet if !probe.has_waited(now) => {}
            // A failure stands even if no peer is left to show it.
            Choice::NotYet | Choice::NoPeer if probe.failure.is_some() => {}
            Choice::NotYet | Choice::NoPeer => probe.state = State::Passed,
        }
        probe.outcome()
    }

    fn start(
        &self,
        nr: u64,
        uid: String,
        moving: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        let known = Arc::clone(&self.known);
        tokio::spawn(async move {
            let moving = AssertUnwindSafe(moving).catch_unwind();
            // A probe that ended without a word would keep its worker out for good.
            let moved = moving
                .await
                .unwrap_or_else(|_| Err("the probe panicked".to_owned()));
            let mut known = known.lock();
            let probe = known.probes.get_mut(&uid);
            if let Some(probe) = probe.filter(|probe| probe.state == State::Runs(nr)) {
                probe.end(moved);
            }
        });
    }

    /// Forgets the workers that are not among those to be admitted.
    pub(crate) fn keep(&self, candidates: &BTreeSet<String>) {
        let mut known = self.known.lock();
        known.probes.retain(|uid, _| candidates.contains(uid));
    }
}

// === impl Probe ===

impl Probe {
    fn new(now: Instant) -> Self {
        Self {
            state: State::Waits(now),
            failure: None,
            attempts: 0,
        }
    }

    fn outcome(&self) -> Probed {
        match (self.state, &self.failure) {
            (State::Passed, _) => Probed::Passed,
            (_, Some(failure)) => Probed::Failed(failure.clone()),
            (_, None) => Probed::Runs,
        }
    }

    fn has_waited(&self, now: Instant) -> bool {
        matches!(self.state, State::Waits(since) if now.duration_since(since) >= LIMIT)
    }

    fn end(&mut self, moved: Result<(), String>) {
        match moved {
            Ok(()) => self.state = State::Passed,
            Err(failure) => {
                self.state = State::Rests(Instant::now() + AGAIN_AFTER);
                self.failure = Some(failure);
            }
        }
    }
}

/// With whom a worker can show that its KV moves.
#[derive(Debug, PartialEq, Eq)]
enum Choice<'a> {
    Peer(&'a Worker),
    /// Peers that no router knows or sends to yet may be of its kind.
    NotYet,
    NoPeer,
}

/// Workers begin with different peers: one that is broken then holds up few.
fn choose<'a>(worker: &Worker, all: &'a [Worker], attempts: usize) -> Choice<'a> {
    if worker.kv_compat.is_none() {
        return Choice::NoPeer;
    }
    let others = || all.iter().filter(|is| is.component != worker.component);
    let same = |other: &&Worker| can_pair(worker, other);
    let peers: Vec<&Worker> = others().filter(same).filter(|is| is.serves).collect();
    if peers.is_empty() {
        let maybe = |other: &Worker| other.kv_compat.is_none() || same(&other);
        return if others().any(maybe) {
            Choice::NotYet
        } else {
            Choice::NoPeer
        };
    }
    let mut hasher = DefaultHasher::new();
    worker.uid.hash(&mut hasher);
    let first = usize::try_from(hasher.finish() % 1024).unwrap_or(0);
    Choice::Peer(peers[(first + attempts) % peers.len()])
}

/// Whether KV means the same to both, and both authenticate peers or neither does.
fn can_pair(worker: &Worker, other: &Worker) -> bool {
    let is_tls = |worker: &Worker| worker.url.starts_with("https:");
    other.kv_compat == worker.kv_compat && is_tls(other) == is_tls(worker)
}

async fn see_kv_move(client: &HttpClient, worker: &Worker, peer: &Worker) -> Result<(), String> {
    let has_moved = async || {
        kv_bytes(client, worker)
            .await
            .is_some_and(|bytes| bytes > 0.0)
    };
    if has_moved().await {
        return Ok(());
    }
    let (prefill, decode) = match worker.component {
        Component::Prefill => (worker, peer),
        Component::Decode | Component::Router => (peer, worker),
    };
    let Err(error) = token::send(client, prefill, decode).await else {
        return Ok(());
    };
    // One that asks for a key admits routers only; one under load may just be late.
    if error.asks_for_key() || has_moved().await {
        return Ok(());
    }
    let (from, to) = (&prefill.name, &decode.name);
    tracing::warn!(from, to, %error, "KV probe failed");
    Err(format!("no KV from {from} to {to}: {error}"))
}

/// What a worker says of KV bytes that it has sent or fetched; nothing if it does not answer.
async fn kv_bytes(client: &HttpClient, worker: &Worker) -> Option<f64> {
    let epoch = tokio::time::Instant::now();
    let sample = scrape::agent(client, &worker.url, epoch).await;
    sample.ok().map(|sample| sample.counters.kv_bytes)
}

#[cfg(test)]
mod tests;
