//! Facts about what a reconcile decides, without an apiserver.

use super::*;
use crate::cluster::fake::mk_deployment;
use crate::cluster::snapshot::fixture::{mk_effective, mk_new, mk_observed, mk_there};
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

fn sizes(writes: &Writes<'_>) -> Vec<(Component, u32)> {
    let desired = writes.desired.iter();
    desired
        .map(|pool| (pool.component, pool.replicas))
        .collect()
}

const ONE_EACH: [(Component, u32); 2] = [(Component::Prefill, 1), (Component::Decode, 1)];

#[test]
fn a_new_deployment_gets_both_pools_their_first_workers_and_their_budgets() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let snapshot = mk_new(&effective);
    let writes = decide_writes(&snapshot, &Observed::default(), None);
    assert_eq!(sizes(&writes), ONE_EACH);
    let created = writes.pools.iter().map(|write| match write {
        PoolWrite::Create(pool) => pool.name_any(),
        PoolWrite::Scale { name, .. } => panic!("{name} is not there yet"),
    });
    assert_eq!(created.collect::<Vec<_>>(), ["a-prefill", "a-decode"]);
    let steps = written(&writes.steps);
    assert_eq!(steps, ["create a-prefill-0-1", "create a-decode-0-1"]);
    assert_eq!(written(&writes.upkeep), [""; 0]);
    assert!(!writes.budgets.is_empty());
}

#[test]
fn at_rest_no_pool_and_no_worker_is_written() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&effective, true);
    let writes = decide_writes(&snapshot, &mk_observed(&snapshot), None);
    assert_eq!(sizes(&writes), ONE_EACH);
    assert_eq!(writes.pools.len(), 0);
    assert_eq!(written(&writes.upkeep), [""; 0]);
    assert_eq!(written(&writes.steps), [""; 0]);
}

#[test]
fn a_worker_that_was_acknowledged_is_admitted_once() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&effective, false);
    let mut observed = mk_observed(&snapshot);
    observed.pods[1].admitted = false;
    let writes = decide_writes(&snapshot, &observed, None);
    assert_eq!(written(&writes.upkeep), ["admit a-prefill-0-1"]);
}

#[test]
fn a_smaller_pool_lets_its_highest_worker_leave() {
    let mut deployment = mk_deployment("a", "ns");
    deployment.spec.pools.decode.replicas = Some(2);
    let effective = mk_effective(&deployment);
    deployment.spec.pools.decode.replicas = Some(1);
    let shrunk = mk_effective(&deployment);
    let snapshot = Snapshot {
        effective: &shrunk,
        ..mk_there(&effective, true)
    };
    let writes = decide_writes(&snapshot, &mk_observed(&snapshot), None);
    let [PoolWrite::Scale { name, replicas, .. }] = &writes.pools[..] else {
        panic!("one pool has another size");
    };
    assert_eq!((name.as_str(), *replicas), ("a-decode", 1));
    assert_eq!(written(&writes.steps), ["leave a-decode-1-1"]);
}

#[test]
fn a_worker_on_its_way_out_is_drained_when_routers_acknowledged_and_deleted_when_drained() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&effective, true);
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
        let writes = decide_writes(&snapshot, &observed, None);
        let of_it = written(&writes.steps).into_iter();
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
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let snapshot = Snapshot {
        token_since: Some(Timestamp::from_second(9).unwrap()),
        ..mk_new(&effective)
    };
    let writes = decide_writes(&snapshot, &Observed::default(), None);
    let template = writes.routers.spec.expect("a spec").template;
    let annotations = template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations[labels::TOKEN_SINCE], "1970-01-01T00:00:09Z");
}

#[tokio::test]
async fn load_is_decided_by_only_when_it_was_observed() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let snapshot = mk_there(&effective, true);
    let mut scaler = Scaler::new(Duration::from_secs(1), Vec::new());
    let mut observed = mk_observed(&snapshot);
    let writes = decide_writes(&snapshot, &observed, Some(&mut scaler));
    assert_eq!(writes.scaling, None);
    observed.load = Some(Load {
        replicas: Vec::new(),
        router_queue: Some(0.0),
        room_came: None,
        at: Duration::from_secs(1),
    });
    let writes = decide_writes(&snapshot, &observed, Some(&mut scaler));
    let decision = writes.scaling.expect("a decision");
    assert_eq!(decision.from, PerRole::of(|_| 1));
}
