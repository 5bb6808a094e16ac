//! Facts about what a reconcile decides, without an apiserver.

use super::*;
use crate::cluster::fake::mk_deployment;
use crate::cluster::snapshot::fixture::{mk_course, mk_new, mk_observed, mk_there};
use crate::controller::autoscale::observations::Load;
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::build::component::Component;
use crate::controller::plan::{Leaving, ObservedRouter};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// What is done to which worker.
fn written(writes: &[WorkerWrite<'_>]) -> Vec<String> {
    let named = writes.iter().map(|write| {
        let (verb, pod) = write.named();
        format!("{verb} {pod}")
    });
    named.collect()
}

fn sizes(sync: &Sync<'_>) -> Vec<(Component, u32)> {
    let desired = sync.desired.iter();
    desired
        .map(|pool| (pool.component, pool.replicas))
        .collect()
}

const ONE_EACH: [(Component, u32); 2] = [(Component::Prefill, 1), (Component::Decode, 1)];

#[test]
fn a_new_deployment_gets_both_pools_their_first_workers_and_their_budgets() {
    let course = mk_course(&mk_deployment("a", "ns"));
    let snapshot = mk_new(&course);
    let sync = decide(&snapshot, &Observed::default(), None);
    assert_eq!(sizes(&sync), ONE_EACH);
    let created = sync.pools.iter().map(|write| match write {
        PoolWrite::Create(pool) => pool.name_any(),
        PoolWrite::Scale { name, .. } => panic!("{name} is not there yet"),
    });
    assert_eq!(created.collect::<Vec<_>>(), ["a-prefill", "a-decode"]);
    let steps = written(&sync.steps);
    assert_eq!(steps, ["create a-prefill-0-1", "create a-decode-0-1"]);
    assert_eq!(written(&sync.upkeep), [""; 0]);
    assert!(!sync.budgets.is_empty());
}

#[test]
fn at_rest_no_pool_and_no_worker_is_written() {
    let course = mk_course(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&course, true);
    let sync = decide(&snapshot, &mk_observed(&snapshot), None);
    assert_eq!(sizes(&sync), ONE_EACH);
    assert_eq!(sync.pools.len(), 0);
    assert_eq!(written(&sync.upkeep), [""; 0]);
    assert_eq!(written(&sync.steps), [""; 0]);
}

#[test]
fn a_worker_that_was_acknowledged_is_admitted_once() {
    let course = mk_course(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&course, false);
    let mut observed = mk_observed(&snapshot);
    observed.pods[1].routable = false;
    let sync = decide(&snapshot, &observed, None);
    assert_eq!(written(&sync.upkeep), ["admit a-prefill-0-1"]);
}

#[test]
fn a_smaller_pool_lets_its_highest_worker_leave() {
    let mut deployment = mk_deployment("a", "ns");
    deployment.spec.pools.decode.replicas = Some(2);
    let course = mk_course(&deployment);
    deployment.spec.pools.decode.replicas = Some(1);
    let shrunk = mk_course(&deployment);
    let snapshot = Snapshot {
        course: &shrunk,
        ..mk_there(&course, true)
    };
    let sync = decide(&snapshot, &mk_observed(&snapshot), None);
    let [PoolWrite::Scale { name, replicas, .. }] = &sync.pools[..] else {
        panic!("one pool has another size");
    };
    assert_eq!((name.as_str(), *replicas), ("a-decode", 1));
    assert_eq!(written(&sync.steps), ["leave a-decode-1-1"]);
}

#[test]
fn a_worker_on_its_way_out_is_drained_when_routers_acknowledged_and_deleted_when_drained() {
    let course = mk_course(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&course, true);
    let step = |drain_asked, drained| {
        let mut observed = mk_observed(&snapshot);
        observed.routers = vec![ObservedRouter {
            pod: "a-router".to_owned(),
            workers: Some(Vec::new()),
        }];
        observed.pods[0].leaving = Some(Leaving {
            drain_asked,
            drained,
            ..Leaving::default()
        });
        let sync = decide(&snapshot, &observed, None);
        let of_it = written(&sync.steps).into_iter();
        of_it
            .filter(|step| step.ends_with("prefill-0-1"))
            .collect::<Vec<_>>()
    };
    assert_eq!(step(false, false), ["drain a-prefill-0-1"]);
    assert_eq!(step(true, false), [""; 0]);
    assert_eq!(step(true, true), ["delete a-prefill-0-1"]);
}

#[test]
fn routers_carry_since_when_the_token_holds() {
    let course = mk_course(&mk_deployment("a", "ns"));
    let snapshot = Snapshot {
        token_since: Some(Timestamp::from_second(9).unwrap()),
        ..mk_new(&course)
    };
    let sync = decide(&snapshot, &Observed::default(), None);
    let template = sync.routers.spec.expect("a spec").template;
    let annotations = template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations[labels::TOKEN_SINCE], "1970-01-01T00:00:09Z");
}

#[tokio::test]
async fn load_is_decided_by_only_when_it_was_observed() {
    let course = mk_course(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&course, true);
    let mut scaler = Scaler::new(Duration::from_secs(1), Vec::new());
    let mut observed = mk_observed(&snapshot);
    let sync = decide(&snapshot, &observed, Some(&mut scaler));
    assert_eq!(sync.scaling, None);
    observed.load = Some(Load {
        replicas: Vec::new(),
        router_queue: Some(0.0),
        room_came: None,
        at: Duration::from_secs(1),
    });
    let sync = decide(&snapshot, &observed, Some(&mut scaler));
    let decision = sync.scaling.expect("a decision");
    assert_eq!(decision.from, PerRole::of(|_| 1));
}
