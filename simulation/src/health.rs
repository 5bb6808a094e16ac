//! Health is true within its bound: soon after a worker is lost the router reports it, and its peers let go of it.

use crate::faults::Places;
use crate::plan::Plan;
use crate::software;
use crate::world::World;
use pd_engine::engine::EngineHandle;
use pd_protocol::workers::WorkerState;
use pd_router::Router;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Workers that the router does not reach, while it runs itself.
    unreached: BTreeMap<usize, Duration>,
    /// Since when a pool has no other.
    lost_since: Option<Duration>,
    /// Pairs of workers of which the first runs, and nothing can come from the second.
    silent: BTreeMap<(usize, usize), Duration>,
    looked_at: Duration,
    /// What each worker had in flight when last seen, of those that get nothing new.
    cordoned: BTreeMap<String, u64>,
}

const PEERS_INTERVAL: Duration = Duration::from_secs(1);

// === impl Health ===

impl Health {
    pub(crate) fn look(&mut self, world: &World, places: &Places) {
        let runs = world.reaches(places.router, places.router);
        let workers = places.prefills.iter().chain(&places.decodes);
        for (nr, host) in workers.enumerate() {
            if runs && !world.reaches(places.router, *host) {
                self.unreached.entry(nr).or_insert(world.now);
            } else {
                self.unreached.remove(&nr);
            }
        }
        let prefills = places.prefills.len();
        let all = prefills + places.decodes.len();
        let is_lost = |mut nrs: Range<usize>| nrs.all(|nr| self.unreached.contains_key(&nr));
        if is_lost(0..prefills) || is_lost(prefills..all) {
            self.lost_since.get_or_insert(world.now);
        } else {
            self.lost_since = None;
        }
        for (one, other) in pairs(prefills, all) {
            if world.is_deaf_to(places.worker(one), places.worker(other)) {
                self.silent.entry((one, other)).or_insert(world.now);
            } else {
                self.silent.remove(&(one, other));
            }
        }
    }

    pub(crate) fn is_truth(
        &self,
        router: &Router,
        plan: &Plan,
        now: Duration,
    ) -> Result<(), String> {
        let limit = plan.probes.lost_within();
        let too_long = |since: &Duration| Some(now - *since).filter(|lost| *lost > limit);
        if let Some(lost) = self.lost_since.as_ref().and_then(too_long)
            && router.is_routable()
        {
            return Err(format!(
                "a pool is lost for {lost:?}, and the router is ready"
            ));
        }
        if self
            .unreached
            .values()
            .all(|since| too_long(since).is_none())
        {
            return Ok(());
        }
        for worker in router.workers() {
            let since = self.unreached.get(&software::nr_of(&worker.spec.url));
            if let Some(lost) = since.and_then(too_long)
                && worker.state == WorkerState::Serving
            {
                let id = worker.spec.id;
                return Err(format!("{id} is lost for {lost:?}, and said to serve"));
            }
        }
        Ok(())
    }

    /// A worker that is cordoned gets no new request.
    pub(crate) fn are_spared(&mut self, router: &Router) -> Result<(), String> {
        let workers = router.workers().into_iter();
        let cordoned = workers.filter(|worker| worker.state == WorkerState::Cordoned);
        let now = cordoned.map(|worker| (worker.spec.id, worker.in_flight));
        let before = std::mem::replace(&mut self.cordoned, now.collect());
        for (id, count) in &self.cordoned {
            if before.get(id).is_some_and(|before| before < count) {
                return Err(format!("{id} is cordoned, and got a request"));
            }
        }
        Ok(())
    }

    /// A worker keeps no registration with a peer from which nothing comes, and no transfers.
    pub(crate) fn are_let_go(
        &mut self,
        engines: &BTreeMap<usize, EngineHandle>,
        plan: &Plan,
        now: Duration,
    ) -> Result<(), String> {
        let Some(shape) = plan.engines else {
            return Ok(());
        };
        if now < self.looked_at + PEERS_INTERVAL {
            return Ok(());
        }
        self.looked_at = now;
        let is_over = |since: &Duration| now - *since > shape.lets_go_within();
        for ((one, other), since) in &self.silent {
            let silent = now - *since;
            if !is_over(since) {
                continue;
            }
            let peer = format!("peer=\"{}:", software::address(*other));
            let text = engines.get(one).map(|engine| engine.metrics().encode());
            let text = text.unwrap_or_default();
            let is_silent = |other| self.silent.get(&(*one, other)).is_some_and(is_over);
            let sends = !text.contains("pdserve_num_prefill_inflight_queue_reqs 0\n");
            let is_prefill = *one < plan.prefills;
            let mut decodes = plan.prefills..plan.prefills + plan.decodes;
            let keeps = if text.contains(&peer) {
                "it"
            } else if is_prefill && sends && decodes.all(is_silent) {
                "what is on its way to it"
            } else {
                continue;
            };
            return Err(format!(
                "worker {one} has heard nothing of worker {other} for {silent:?}, and keeps {keeps}"
            ));
        }
        Ok(())
    }
}

/// Workers that may have registered with each other.
fn pairs(prefills: usize, all: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..prefills).flat_map(move |prefill| {
        (prefills..all).flat_map(move |decode| [(prefill, decode), (decode, prefill)])
    })
}
