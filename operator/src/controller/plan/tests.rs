//! Facts about the next step, one state at a time, and runs of the whole plan against a model of
//! the world in which every step succeeds.

use super::*;
use crate::controller::build::component::Component::{Decode, Prefill, Router};
use pd_protocol::workers::{Role, WorkerSpec};

fn mk_desired(component: Component, replicas: u32, revision: &str) -> Desired {
    let surge = u32::from(component != Router);
    Desired {
        component,
        replicas,
        revision: revision.to_owned(),
        surge,
        unavailable: 1 - surge,
        paused: false,
    }
}

fn mk_pod(component: Component, ordinal: u32, revision: &str) -> ObservedPod {
    let slot = Slot {
        ordinal,
        incarnation: 1,
    };
    ObservedPod {
        name: slot.pod_name(component.as_str()),
        component,
        slot,
        revision: revision.to_owned(),
        ready: true,
        routable: true,
        leaving: None,
    }
}

fn mk_listed(pod: &ObservedPod, state: WorkerState) -> WorkerStatus {
    let role = pod.component.worker_role().unwrap_or(Role::Null);
    WorkerStatus {
        spec: WorkerSpec {
            id: pod.name.clone(),
            role,
            url: "http://127.1.1.1:30000".to_owned(),
            bootstrap_host: None,
            bootstrap_port: None,
        },
        state,
        circuit_open: false,
        in_flight: 0,
        kv_compat: None,
        boot_id: None,
        reason: None,
    }
}

fn mk_router(workers: Option<Vec<WorkerStatus>>) -> ObservedRouter {
    ObservedRouter {
        pod: "router-0-1".to_owned(),
        workers,
    }
}

/// One of each, all serving.
fn mk_settled() -> Observed {
    let pods = vec![
        mk_pod(Router, 0, "r"),
        mk_pod(Prefill, 0, "a"),
        mk_pod(Decode, 0, "a"),
    ];
    let workers = pods[1..]
        .iter()
        .map(|pod| mk_listed(pod, WorkerState::Serving))
        .collect();
    Observed {
        pods,
        routers: vec![mk_router(Some(workers))],
    }
}

fn mk_wanted(prefill: u32, decode: u32, revision: &str) -> Vec<Desired> {
    vec![
        mk_desired(Router, 1, "r"),
        mk_desired(Prefill, prefill, revision),
        mk_desired(Decode, decode, revision),
    ]
}

fn leaves(pod: &str) -> Action {
    Action::Leave {
        pod: pod.to_owned(),
    }
}

#[test]
fn nothing_is_done_when_all_is_as_wanted() {
    assert_eq!(plan(&mk_wanted(1, 1, "a"), &mk_settled()), vec![]);
}

#[test]
fn an_empty_machine_gets_every_pod_at_once() {
    let empty = Observed {
        pods: vec![],
        routers: vec![],
    };
    let create = |component, ordinal| Action::Create { component, ordinal };
    assert_eq!(
        plan(&mk_wanted(2, 1, "a"), &empty),
        vec![
            create(Router, 0),
            create(Prefill, 0),
            create(Prefill, 1),
            create(Decode, 0)
        ]
    );
}

#[test]
fn a_larger_pool_gets_the_lowest_free_ordinal() {
    let mut observed = mk_settled();
    observed.pods[1].slot.ordinal = 1;
    let actions = plan(&mk_wanted(2, 1, "a"), &observed);
    assert_eq!(
        actions,
        vec![Action::Create {
            component: Prefill,
            ordinal: 0
        }]
    );
}

#[test]
fn an_ordinal_is_not_reused_while_its_pod_leaves() {
    let mut observed = mk_settled();
    observed.pods[1].leaving = Some(Leaving {
        terminated: true,
        ..Leaving::default()
    });
    observed.routers.clear();
    let actions = plan(&mk_wanted(1, 1, "a"), &observed);
    assert_eq!(
        actions,
        vec![Action::Create {
            component: Prefill,
            ordinal: 1
        }]
    );
}

#[test]
fn a_smaller_pool_loses_the_highest_ordinal() {
    let mut observed = mk_settled();
    let second = mk_pod(Decode, 1, "a");
    observed.routers[0]
        .workers
        .as_mut()
        .unwrap()
        .push(mk_listed(&second, WorkerState::Serving));
    observed.pods.push(second);
    assert_eq!(
        plan(&mk_wanted(1, 1, "a"), &observed),
        vec![leaves("decode-1-1")]
    );
}

#[test]
fn a_smaller_pool_loses_what_does_not_serve_first() {
    let mut observed = mk_settled();
    observed.pods.push(mk_pod(Decode, 1, "a"));
    observed.pods[2].ready = false;
    let actions = plan(&mk_wanted(1, 1, "a"), &observed);
    assert!(actions.contains(&leaves("decode-0-1")), "{actions:?}");
    assert!(!actions.contains(&leaves("decode-1-1")), "{actions:?}");
}

#[test]
fn a_worker_is_registered_only_when_ready() {
    let mut observed = mk_settled();
    observed.routers[0].workers = Some(vec![]);
    observed.pods[1].ready = false;
    let actions = plan(&mk_wanted(1, 1, "a"), &observed);
    let register = Action::Register {
        router: "router-0-1".to_owned(),
        pod: "decode-0-1".to_owned(),
    };
    assert_eq!(actions, vec![register]);
}

#[test]
fn a_router_forgets_workers_that_no_longer_exist() {
    let mut observed = mk_settled();
    let gone = mk_listed(&mk_pod(Decode, 7, "a"), WorkerState::Unready);
    observed.routers[0].workers.as_mut().unwrap().push(gone);
    let deregister = Action::Deregister {
        router: "router-0-1".to_owned(),
        worker: "decode-7-1".to_owned(),
    };
    assert_eq!(plan(&mk_wanted(1, 1, "a"), &observed), vec![deregister]);
}

/// Follows one worker out, step by step.
#[test]
fn a_worker_drains_only_after_the_router_acknowledged_its_cordon() {
    let mut observed = mk_settled();
    let wanted = vec![mk_desired(Router, 1, "r")];
    let pod = || "decode-0-1".to_owned();
    observed.pods[2].leaving = Some(Leaving::default());
    let cordon = Action::Cordon {
        router: "router-0-1".to_owned(),
        pod: pod(),
    };
    assert_eq!(plan(&wanted, &observed), vec![cordon]);

    observed.routers[0].workers.as_mut().unwrap()[1].state = WorkerState::Cordoned;
    assert_eq!(plan(&wanted, &observed), vec![Action::Drain { pod: pod() }]);

    let mut leaving = Leaving {
        drain_asked: true,
        ..Leaving::default()
    };
    observed.pods[2].leaving = Some(leaving);
    assert_eq!(plan(&wanted, &observed), vec![]);

    leaving.drained = true;
    observed.pods[2].leaving = Some(leaving);
    assert_eq!(
        plan(&wanted, &observed),
        vec![Action::Terminate { pod: pod() }]
    );

    leaving.terminated = true;
    observed.pods[2].leaving = Some(leaving);
    assert_eq!(plan(&wanted, &observed), vec![]);

    observed.pods.remove(2);
    let deregister = Action::Deregister {
        router: "router-0-1".to_owned(),
        worker: pod(),
    };
    assert_eq!(plan(&wanted, &observed), vec![deregister]);
}

#[test]
fn a_worker_past_its_deadline_is_ended() {
    let mut observed = mk_settled();
    observed.pods[2].leaving = Some(Leaving {
        past_deadline: true,
        ..Leaving::default()
    });
    let actions = plan(&[mk_desired(Router, 1, "r")], &observed);
    assert!(
        actions.contains(&Action::Terminate {
            pod: "decode-0-1".to_owned()
        }),
        "{actions:?}"
    );
}

#[test]
fn a_router_that_does_not_answer_holds_up_no_drain() {
    let mut observed = mk_settled();
    observed.routers[0].workers = None;
    observed.pods[2].leaving = Some(Leaving::default());
    let actions = plan(&[mk_desired(Router, 1, "r")], &observed);
    assert_eq!(
        actions,
        vec![Action::Drain {
            pod: "decode-0-1".to_owned()
        }]
    );
}

#[test]
fn a_router_ends_without_a_drain_call() {
    let mut observed = mk_settled();
    observed.pods[0].leaving = Some(Leaving::default());
    observed.routers.clear();
    let actions = plan(&[], &observed);
    assert_eq!(
        actions,
        vec![Action::Terminate {
            pod: "router-0-1".to_owned()
        }]
    );
}

#[test]
fn a_changed_router_makes_way_before_the_next_one_starts() {
    let mut wanted = mk_wanted(1, 1, "a");
    wanted[0].revision = "s".to_owned();
    let mut observed = mk_settled();
    assert_eq!(plan(&wanted, &observed), vec![leaves("router-0-1")]);
    observed.pods.remove(0);
    observed.routers.clear();
    assert_eq!(
        plan(&wanted, &observed),
        vec![Action::Create {
            component: Router,
            ordinal: 0
        }]
    );
}

#[test]
fn a_paused_rollout_replaces_nothing() {
    let mut wanted = mk_wanted(1, 1, "b");
    wanted.iter_mut().for_each(|pool| pool.paused = true);
    assert_eq!(plan(&wanted, &mk_settled()), vec![]);
}

/// A world in which every step succeeds by the next pass.
struct World {
    observed: Observed,
    incarnation: u32,
    /// Least number of serving pairs of one revision seen.
    pairs_min: usize,
    pods_max: usize,
}

impl World {
    fn new(observed: Observed) -> Self {
        Self {
            observed,
            incarnation: 1,
            pairs_min: usize::MAX,
            pods_max: 0,
        }
    }

    /// Applies plans until nothing is left to do.
    fn settle(&mut self, wanted: &[Desired]) {
        for _ in 0..200 {
            self.pass_time();
            let actions = plan(wanted, &self.observed);
            if actions.is_empty() && self.observed.pods.iter().all(ObservedPod::serves) {
                return;
            }
            actions
                .into_iter()
                .for_each(|action| self.apply(action, wanted));
            self.measure();
        }
        panic!("does not settle: {:#?}", self.observed);
    }

    fn pass_time(&mut self) {
        self.observed
            .pods
            .retain(|pod| !pod.leaving.is_some_and(|leaving| leaving.terminated));
        for pod in &mut self.observed.pods {
            pod.ready = true;
            let listed = self
                .observed
                .routers
                .iter()
                .any(|router| router.sends_to(&pod.name));
            pod.routable |= listed || pod.component == Router;
            if let Some(leaving) = &mut pod.leaving {
                leaving.drained |= leaving.drain_asked;
            }
        }
    }

    fn apply(&mut self, action: Action, wanted: &[Desired]) {
        let pods = &mut self.observed.pods;
        let workers = self.observed.routers[0].workers.as_mut().unwrap();
        let find = |pods: &[ObservedPod], name: &str| {
            pods.iter()
                .position(|pod| pod.name == name)
                .expect("plans name pods that exist")
        };
        match action {
            Action::Create { component, ordinal } => {
                let pool = wanted
                    .iter()
                    .find(|pool| pool.component == component)
                    .unwrap();
                let mut pod = mk_pod(component, ordinal, &pool.revision);
                self.incarnation += 1;
                pod.slot.incarnation = self.incarnation;
                pod.name = pod.slot.pod_name(component.as_str());
                (pod.ready, pod.routable) = (false, false);
                pods.push(pod);
            }
            Action::Leave { pod } => {
                let at = find(pods, &pod);
                pods[at].leaving = Some(Leaving::default());
            }
            Action::Register { pod, .. } => {
                let at = find(pods, &pod);
                workers.push(mk_listed(&pods[at], WorkerState::Serving));
            }
            Action::Cordon { pod, .. } => {
                let worker = workers
                    .iter_mut()
                    .find(|worker| worker.spec.id == pod)
                    .unwrap();
                worker.state = WorkerState::Cordoned;
            }
            Action::Deregister { worker, .. } => workers.retain(|w| w.spec.id != worker),
            Action::Drain { pod } => {
                let at = find(pods, &pod);
                pods[at].leaving.as_mut().unwrap().drain_asked = true;
            }
            Action::Terminate { pod } => {
                let at = find(pods, &pod);
                pods[at].leaving.as_mut().unwrap().terminated = true;
            }
        }
    }

    fn measure(&mut self) {
        let router = &self.observed.routers[0];
        let serving = |component, revision: &str| {
            let pods = self
                .observed
                .pods
                .iter()
                .filter(|pod| router.sends_to(&pod.name));
            pods.filter(|pod| pod.component == component && pod.revision == revision)
                .count()
        };
        let pairs = |revision| serving(Prefill, revision).min(serving(Decode, revision));
        self.pairs_min = self.pairs_min.min(pairs("a").max(pairs("b")));
        self.pods_max = self.pods_max.max(self.observed.pods.len());
    }

    fn count(&self, component: Component, revision: &str) -> usize {
        let pods = self.observed.pods.iter().filter(|pod| pod.serves());
        pods.filter(|pod| pod.component == component && pod.revision == revision)
            .count()
    }
}

#[test]
fn a_new_revision_replaces_the_old_without_a_moment_without_a_pair() {
    for (prefill, decode) in [(1, 1), (2, 1), (1, 3), (3, 2)] {
        let mut world = World::new(mk_settled());
        world.settle(&mk_wanted(prefill, decode, "a"));
        (world.pairs_min, world.pods_max) = (usize::MAX, 0);
        world.settle(&mk_wanted(prefill, decode, "b"));
        assert_eq!(world.count(Prefill, "b"), prefill as usize);
        assert_eq!(world.count(Decode, "b"), decode as usize);
        assert_eq!(world.count(Prefill, "a") + world.count(Decode, "a"), 0);
        assert!(world.pairs_min >= 1, "{prefill}P{decode}D went dark");
    }
}

#[test]
fn a_rollout_may_change_the_size_as_well() {
    for (from, to) in [(3, 1), (1, 3)] {
        let mut world = World::new(mk_settled());
        world.settle(&mk_wanted(from, from, "a"));
        world.settle(&mk_wanted(to, to, "b"));
        assert_eq!(world.count(Prefill, "b"), to as usize);
        assert_eq!(world.count(Decode, "b"), to as usize);
        assert!(world.pairs_min >= 1, "{from} to {to} went dark");
    }
}

#[test]
fn without_surge_a_rollout_takes_away_before_it_adds() {
    let without_surge = |revision| {
        let mut wanted = mk_wanted(2, 2, revision);
        for pool in &mut wanted {
            (pool.surge, pool.unavailable) = (0, 1);
        }
        wanted
    };
    let mut world = World::new(mk_settled());
    world.settle(&without_surge("a"));
    world.pods_max = 0;
    world.settle(&without_surge("b"));
    assert_eq!(
        (world.count(Prefill, "b"), world.count(Decode, "b")),
        (2, 2)
    );
    // A pod on its way out does not hold back its successor's place.
    let live_max = 5;
    assert!(
        world.pods_max <= live_max + 2,
        "{} pods at once",
        world.pods_max
    );
}

#[test]
fn a_revert_in_the_middle_of_a_rollout_keeps_what_still_serves() {
    let mut world = World::new(mk_settled());
    world.settle(&mk_wanted(2, 2, "a"));
    for _ in 0..2 {
        let wanted = mk_wanted(2, 2, "b");
        world.pass_time();
        let actions = plan(&wanted, &world.observed);
        actions
            .into_iter()
            .for_each(|action| world.apply(action, &wanted));
    }
    let names = |world: &World| -> Vec<String> {
        let pods = world.observed.pods.iter().filter(|pod| pod.revision == "a");
        pods.map(|pod| pod.name.clone()).collect()
    };
    let before = names(&world);
    world.settle(&mk_wanted(2, 2, "a"));
    assert_eq!(names(&world), before);
}
