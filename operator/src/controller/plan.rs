//! What to do next, from what is wanted and what is there. No I/O, no memory.
//!
//! A pod is replaced by one that serves first; prefill and decode are replaced in step.
//!
//! A worker's way out: `Leave` → every router acknowledged its `Cordon` → `Drain` → drained or past
//! the deadline → `Terminate` → its process is gone → `Deregister`.

use crate::controller::autoscale::observations::Load;
use crate::controller::build::component::Component;
use crate::controller::build::slot::Slot;
use pd_crds::node_disposition::NodeDisposition;
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
    /// Pods of a replica, each on a node of its own.
    pub(crate) nodes: u32,
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
    /// Every ready router sends to it, and its KV probe passed: on a cluster its readiness gate has latched, or does so in
    /// this reconcile.
    pub(crate) admitted: bool,
    pub(crate) disposition: NodeDisposition,
    /// Its GPU is degraded; known only while the autoscaler asks.
    pub(crate) degraded: bool,
    /// It spans nodes, and has not got all of them yet.
    pub(crate) gathers: bool,
    /// Present once the pod was asked to leave, has ended, or was deleted.
    pub(crate) leaving: Option<Leaving>,
}

/// How far a pod is on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// It was asked to drain.
    pub(crate) drain_asked: bool,
    /// Nothing is in flight on it: it said so, or its process has ended.
    pub(crate) drained: bool,
    /// It did not answer when it was last asked; it is asked again.
    pub(crate) unanswered: bool,
    /// It has no admin API that could be asked: the routers say what it has in flight, and its
    /// process drains by itself when it gets SIGTERM.
    pub(crate) by_routers: bool,
    /// Its time to drain is over.
    pub(crate) past_deadline: bool,
    /// Its process got SIGTERM.
    pub(crate) terminated: bool,
}

/// A router that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedRouter {
    pub(crate) pod: String,
    /// Its workers, or nothing if it did not answer.
    pub(crate) workers: Option<Vec<WorkerStatus>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    pub(crate) pods: Vec<ObservedPod>,
    pub(crate) routers: Vec<ObservedRouter>,
    /// Why a worker that is to serve is not admitted: its KV reaches no peer.
    pub(crate) unpaired: Option<String>,
    /// What the autoscaler decides by; nothing where it need not, or not yet again.
    pub(crate) load: Option<Load>,
}

/// One step. Each is safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start a pod of an ordinal that none has.
    Create { component: Component, ordinal: u32 },
    /// Begin a pod's way out; nothing leads back.
    Leave { pod: String },
    /// Register a worker with a router.
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
    let pools = desired.iter().flat_map(|pool| {
        let progress = Progress::of(pool, desired, &observed.pods);
        plan_pool(pool, &observed.pods, progress)
    });
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

/// How far a replacement has come: pods that serve as wanted, of those wanted.
#[derive(Clone, Copy)]
struct Progress {
    serving: usize,
    wanted: usize,
}

/// Steps of one pool. A pod is replaced when its revision is an old one or its node is to be empty;
/// its successor serves first, as far as `surge` allows.
fn plan_pool(pool: &Desired, pods: &[ObservedPod], progress: Progress) -> Vec<Action> {
    let of_pool = || pods.iter().filter(|pod| pod.component == pool.component);
    let stays = |pod: &&ObservedPod| pod.leaving.is_none();
    let is_lost = |pod: &&ObservedPod| pod.disposition == NodeDisposition::Lost;
    let live: Vec<_> = of_pool()
        .filter(stays)
        .filter(|pod| !is_lost(pod))
        .collect();
    let (new, old): (Vec<_>, Vec<_>) = live.iter().copied().partition(|pod| pool.is_as_wanted(pod));
    let (replaced, kept): (Vec<_>, Vec<_>) = old.into_iter().partition(|pod| pool.replaces(pod));
    let wanted = pool.replicas as usize;
    let surge = if replaced.is_empty() {
        0
    } else {
        pool.surge as usize
    };
    let room = (wanted + surge).saturating_sub(live.len());
    let missing = wanted.saturating_sub(new.len() + kept.len()).min(room);
    // Replicas that span nodes begin one after the other: two that each had half of what is left
    // would wait for each other forever.
    let at_once = match pool.nodes {
        0 | 1 => missing,
        _ => usize::from(live.iter().all(|pod| !pod.gathers)),
    };
    let taken: Vec<u32> = of_pool().map(|pod| pod.slot.ordinal).collect();
    let free = (0..).filter(|ordinal| !taken.contains(ordinal));
    let creates = free
        .take(missing.min(at_once))
        .map(|ordinal| Action::Create {
            component: pool.component,
            ordinal,
        });
    let mut actions: Vec<Action> = creates.collect();
    let mut victims: Vec<&ObservedPod> = of_pool().filter(stays).filter(is_lost).collect();
    let surplus = (new.len() + kept.len()).saturating_sub(wanted);
    victims.extend(pick_victims(new.into_iter().chain(kept).collect(), surplus));
    victims.extend(replaced_that_may_leave(pool, replaced, &live, progress));
    actions.extend(victims.into_iter().map(|pod| Action::Leave {
        pod: pod.name.clone(),
    }));
    actions
}

/// The pods to lose first: those that do not serve, then the degraded, then the highest ordinals.
fn pick_victims(mut pods: Vec<&ObservedPod>, count: usize) -> Vec<&ObservedPod> {
    pods.sort_by_key(|pod| (pod.serves(), !pod.degraded, Reverse(pod.slot.ordinal)));
    pods.truncate(count);
    pods
}

/// Of the pods to be replaced, those whose successors serve in both pools, as far as `unavailable`
/// does not allow more; and those that never served.
fn replaced_that_may_leave<'a>(
    pool: &Desired,
    replaced: Vec<&'a ObservedPod>,
    live: &[&'a ObservedPod],
    progress: Progress,
) -> Vec<&'a ObservedPod> {
    let wanted = pool.replicas as usize;
    let unavailable = pool.unavailable as usize;
    let keep = wanted.saturating_sub(progress.share_of(wanted) + unavailable);
    let succeeded = replaced.len().saturating_sub(keep);
    let beyond_size = live.len().saturating_sub(wanted + pool.surge as usize);
    let never_served = replaced.iter().filter(|pod| !pod.admitted).count();
    let count = beyond_size.max(succeeded).max(never_served);
    let floor = wanted.saturating_sub(unavailable);
    let mut serving = live.iter().filter(|pod| pod.serves()).count();
    let mut leave = pick_victims(replaced, count);
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
        unanswered: _,
        by_routers,
        past_deadline,
        terminated,
    } = pod.leaving?;
    let name = pod.name.clone();
    let drains = pod.component != Component::Router;
    if terminated {
        None
    } else if !drains || drained || past_deadline {
        Some(Action::Terminate { pod: name })
    } else if by_routers {
        let is_idle = routers.iter().all(|router| router.has_nothing_on(pod));
        is_idle.then_some(Action::Terminate { pod: name })
    } else if !drain_asked && routers.iter().all(|router| router.sends_nothing_to(pod)) {
        Some(Action::Drain { pod: name })
    } else {
        None
    }
}

// === impl Progress ===

impl Progress {
    /// Of the pool that lags behind: prefill and decode are replaced in step, because a pair is of
    /// one kind.
    fn of(pool: &Desired, desired: &[Desired], pods: &[ObservedPod]) -> Self {
        let is_worker = |pool: &Desired| pool.component != Component::Router;
        let in_step = desired.iter().filter(|other| {
            other.component == pool.component || (is_worker(pool) && is_worker(other))
        });
        let progress = in_step.filter(|pool| pool.replicas > 0).map(|pool| {
            let serving = |pod: &&ObservedPod| {
                pod.component == pool.component && pool.is_as_wanted(pod) && pod.serves()
            };
            let wanted = pool.replicas as usize;
            Self {
                serving: pods.iter().filter(serving).count().min(wanted),
                wanted,
            }
        });
        let lags = progress.min_by(|a, b| (a.serving * b.wanted).cmp(&(b.serving * a.wanted)));
        lags.unwrap_or(Self {
            serving: 1,
            wanted: 1,
        })
    }

    /// The same share of another number, rounded up.
    fn share_of(self, number: usize) -> usize {
        (number * self.serving).div_ceil(self.wanted)
    }
}

// === impl Desired ===

impl Desired {
    /// Whether a pod needs no successor.
    fn is_as_wanted(&self, pod: &ObservedPod) -> bool {
        pod.revision == self.revision && pod.disposition == NodeDisposition::Keep
    }

    /// Whether a pod that is not as wanted is replaced now: a pause holds back revisions only.
    fn replaces(&self, pod: &ObservedPod) -> bool {
        !self.paused || pod.disposition == NodeDisposition::Evacuate
    }

    /// No pod of a component.
    pub(crate) fn nothing(component: Component) -> Self {
        Self {
            component,
            replicas: 0,
            revision: String::new(),
            surge: 0,
            unavailable: 0,
            paused: false,
            nodes: 1,
        }
    }
}

// === impl ObservedPod ===

impl ObservedPod {
    /// Whether it counts as a replica that serves.
    pub(crate) fn serves(&self) -> bool {
        self.ready && self.admitted && self.leaving.is_none()
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

    /// Whether the router says that no request is in flight on the pod, and will send none. One that does not answer may
    /// have some.
    fn has_nothing_on(&self, pod: &ObservedPod) -> bool {
        let of_pod = |worker: &&WorkerStatus| worker.spec.id == pod.name;
        self.workers.as_ref().is_some_and(|workers| {
            let mut workers = workers.iter().filter(of_pod);
            self.sends_nothing_to(pod) && workers.all(|worker| worker.in_flight == 0)
        })
    }

    /// Whether the router sends requests to the pod.
    pub(crate) fn sends_to(&self, pod: &str) -> bool {
        let mut workers = self.workers.iter().flatten();
        workers.any(|worker| worker.spec.id == pod && worker.state == WorkerState::Serving)
    }
}

#[cfg(test)]
mod tests;
