//! Runs of the whole plan against a model of the world in which every step succeeds.

use super::*;

/// A world in which every step succeeds by the next reconcile.
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
            pod.admitted |= listed || pod.component == Router;
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
                (pod.ready, pod.admitted) = (false, false);
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

/// A new prefill worker pairs with new decode workers only: neither pool runs ahead.
#[test]
fn both_pools_are_replaced_in_step() {
    let mut world = World::new(mk_settled());
    world.settle(&mk_wanted(4, 4, "a"));
    let wanted = mk_wanted(4, 4, "b");
    // Decode workers of the new revision take twenty times as long to start.
    let mut reconciles = 0;
    while world.count(Prefill, "b") < 4 || world.count(Decode, "b") < 4 {
        reconciles += 1;
        assert!(reconciles < 1000, "does not settle: {:#?}", world.observed);
        let pods = world.observed.pods.iter();
        let is_slow = |pod: &&ObservedPod| pod.component == Decode && !pod.ready;
        let slow: Vec<String> = pods.filter(is_slow).map(|pod| pod.name.clone()).collect();
        world.pass_time();
        let pods = world.observed.pods.iter_mut();
        pods.filter(|pod| slow.contains(&pod.name) && reconciles % 20 != 0)
            .for_each(|pod| pod.ready = false);
        let actions = plan(&wanted, &world.observed);
        actions
            .into_iter()
            .for_each(|action| world.apply(action, &wanted));
        let pairs = |revision| {
            let prefill = world.count(Prefill, revision);
            prefill.min(world.count(Decode, revision))
        };
        assert!(
            pairs("a") + pairs("b") >= 3,
            "{} old and {} new pairs",
            pairs("a"),
            pairs("b")
        );
    }
}
