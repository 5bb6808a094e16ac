//! What to do next, from what is wanted and what is there. No I/O, no memory.
//!
//! A worker's way out: `Leave` → every router acknowledged its `Cordon` → `Drain` → drained or past
//! the deadline → `Terminate` → its process is gone → `Deregister`.

use crate::controller::build::component::Component;
use crate::controller::build::pool::Slot;
use pd_protocol::workers::{WorkerState, WorkerStatus};
use std::cmp::Reverse;

/// Pods wanted of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) component: Component,
    pub(crate) replicas: u32,
    pub(crate) revision: String,
    /// Pods that may exist beyond `replicas` while a revision is replaced.
    pub(crate) surge: u32,
    /// Pods that may lack while a revision is replaced.
    pub(crate) unavailable: u32,
    pub(crate) paused: bool,
}

/// A pod that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedPod {
    pub(crate) name: String,
    pub(crate) component: Component,
    pub(crate) slot: Slot,
    pub(crate) revision: String,
    /// Its container passes its probes.
    pub(crate) ready: bool,
    /// Its readiness gate has latched: every router sends requests to it.
    pub(crate) routable: bool,
    /// Present once the pod has been told to go.
    pub(crate) leaving: Option<Leaving>,
}

/// How far a pod is on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// It was asked to drain.
    pub(crate) drain_asked: bool,
    /// Nothing is in flight on it, or it does not answer.
    pub(crate) drained: bool,
    /// Its time to drain is over.
    pub(crate) past_deadline: bool,
    /// Its process was told to end.
    pub(crate) terminated: bool,
}

/// A router that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedRouter {
    pub(crate) pod: String,
    /// Its workers, or nothing if it did not answer.
    pub(crate) workers: Option<Vec<WorkerStatus>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) pods: Vec<ObservedPod>,
    pub(crate) routers: Vec<ObservedRouter>,
}

/// One step. Each is safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start the next incarnation of an ordinal.
    Create { component: Component, ordinal: u32 },
    /// Begin a pod's way out; nothing leads back.
    Leave { pod: String },
    /// Tell a router of a worker.
    Register { router: String, pod: String },
    /// Have a router send no new request to a worker.
    Cordon { router: String, pod: String },
    /// Have a router forget a worker.
    Deregister { router: String, worker: String },
    /// Ask a worker to finish what it has and take nothing new.
    Drain { pod: String },
    /// End a pod's process.
    Terminate { pod: String },
}

/// The next steps towards `desired`.
pub(crate) fn plan(desired: &[Desired], observed: &Observed) -> Vec<Action> {
    let pair = new_pair_is_routable(desired, &observed.pods);
    let pools = desired
        .iter()
        .flat_map(|pool| plan_pool(pool, &observed.pods, pair));
    let routers = observed
        .routers
        .iter()
        .flat_map(|router| plan_router(router, &observed.pods));
    let leaving = observed
        .pods
        .iter()
        .filter_map(|pod| plan_leaving(pod, &observed.routers));
    pools.chain(routers).chain(leaving).collect()
}

/// Whether prefill and decode each have a routable pod of the revision that is wanted: until then
/// no pod of an older one makes way.
fn new_pair_is_routable(desired: &[Desired], pods: &[ObservedPod]) -> bool {
    desired
        .iter()
        .filter(|pool| pool.component != Component::Router)
        .all(|pool| {
            pods.iter().any(|pod| {
                pod.component == pool.component && pod.revision == pool.revision && pod.serves()
            })
        })
}

fn plan_pool(pool: &Desired, pods: &[ObservedPod], new_pair_is_routable: bool) -> Vec<Action> {
    let of_pool = || pods.iter().filter(|pod| pod.component == pool.component);
    let live = || of_pool().filter(|pod| pod.leaving.is_none());
    let (new, old): (Vec<_>, Vec<_>) = live().partition(|pod| pod.revision == pool.revision);
    let wanted = pool.replicas as usize;
    let surge = if old.is_empty() || pool.paused {
        0
    } else {
        pool.surge as usize
    };
    let room = (wanted + surge).saturating_sub(new.len() + old.len());
    let missing = wanted.saturating_sub(new.len()).min(room);
    let taken: Vec<u32> = of_pool().map(|pod| pod.slot.ordinal).collect();
    let free = (0..).filter(|ordinal| !taken.contains(ordinal));
    let creates = free.take(missing).map(|ordinal| Action::Create {
        component: pool.component,
        ordinal,
    });
    let mut actions: Vec<Action> = creates.collect();
    let surplus_new = new.len().saturating_sub(wanted);
    let mut victims = pick_victims(new, surplus_new);
    let gate_open = new_pair_is_routable || pool.surge == 0;
    victims.extend(old_that_may_leave(pool, old, live().collect(), gate_open));
    actions.extend(victims.into_iter().map(|pod| Action::Leave {
        pod: pod.name.clone(),
    }));
    actions
}

/// The pods to lose first: those that do not serve, then the highest ordinals.
fn pick_victims(mut pods: Vec<&ObservedPod>, count: usize) -> Vec<&ObservedPod> {
    pods.sort_by_key(|pod| (pod.serves(), Reverse(pod.slot.ordinal)));
    pods.truncate(count);
    pods
}

fn old_that_may_leave<'a>(
    pool: &Desired,
    old: Vec<&'a ObservedPod>,
    live: Vec<&'a ObservedPod>,
    gate_open: bool,
) -> Vec<&'a ObservedPod> {
    let wanted = pool.replicas as usize;
    // Room is made for a new pod that is still to come.
    let to_come = usize::from(live.len() - old.len() < wanted && !pool.paused);
    let beyond_size = (live.len() + to_come).saturating_sub(wanted + pool.surge as usize);
    let replaced = if gate_open && !pool.paused {
        old.len()
    } else {
        0
    };
    let count = beyond_size.max(replaced).min(old.len());
    let floor = wanted.saturating_sub(pool.unavailable as usize);
    let mut serving = live.iter().filter(|pod| pod.serves()).count();
    let mut leave = pick_victims(old, count);
    leave.retain(|pod| {
        let may = !pod.serves() || serving > floor;
        serving -= usize::from(may && pod.serves());
        may
    });
    leave
}

/// Brings a router's list of workers in line with the pods.
fn plan_router(router: &ObservedRouter, pods: &[ObservedPod]) -> Vec<Action> {
    let Some(workers) = &router.workers else {
        return Vec::new();
    };
    let listed = |pod: &ObservedPod| workers.iter().find(|worker| worker.spec.id == pod.name);
    let mut actions = Vec::new();
    for pod in pods.iter().filter(|pod| pod.component != Component::Router) {
        let (router, name) = (router.pod.clone(), pod.name.clone());
        match (&pod.leaving, listed(pod)) {
            (None, None) if pod.ready => actions.push(Action::Register { router, pod: name }),
            (Some(_), Some(worker)) if worker.state != WorkerState::Cordoned => {
                actions.push(Action::Cordon { router, pod: name });
            }
            (None | Some(_), _) => {}
        }
    }
    let gone = workers
        .iter()
        .filter(|worker| pods.iter().all(|pod| pod.name != worker.spec.id));
    actions.extend(gone.map(|worker| Action::Deregister {
        router: router.pod.clone(),
        worker: worker.spec.id.clone(),
    }));
    actions
}

fn plan_leaving(pod: &ObservedPod, routers: &[ObservedRouter]) -> Option<Action> {
    let Leaving {
        drain_asked,
        drained,
        past_deadline,
        terminated,
    } = pod.leaving?;
    let name = pod.name.clone();
    let drains = pod.component != Component::Router;
    if terminated {
        None
    } else if !drains || drained || past_deadline {
        Some(Action::Terminate { pod: name })
    } else if !drain_asked && routers.iter().all(|router| router.sends_nothing_to(pod)) {
        Some(Action::Drain { pod: name })
    } else {
        None
    }
}

// === impl Desired ===

impl Desired {
    /// No pod of a component.
    pub(crate) fn nothing(component: Component) -> Self {
        Self {
            component,
            replicas: 0,
            revision: String::new(),
            surge: 0,
            unavailable: 0,
            paused: false,
        }
    }
}

// === impl ObservedPod ===

impl ObservedPod {
    /// Whether it counts as a replica that serves.
    pub(crate) fn serves(&self) -> bool {
        self.ready && self.routable && self.leaving.is_none()
    }
}

// === impl ObservedRouter ===

impl ObservedRouter {
    /// Whether the router has acknowledged that the pod gets no new request, or does not answer,
    /// which must not hold up a drain: the agent itself refuses new rooms then.
    fn sends_nothing_to(&self, pod: &ObservedPod) -> bool {
        let workers = self.workers.iter().flatten();
        workers
            .filter(|worker| worker.spec.id == pod.name)
            .all(|worker| worker.state == WorkerState::Cordoned)
    }

    /// Whether the router sends requests to the pod.
    pub(crate) fn sends_to(&self, pod: &str) -> bool {
        let mut workers = self.workers.iter().flatten();
        workers.any(|worker| worker.spec.id == pod && worker.state == WorkerState::Serving)
    }
}

#[cfg(test)]
mod tests;
