//! Facts about gangs: who is in one, and when one gives back its nodes.

mod queued;

use super::*;
use crate::cluster::effective_spec::EffectiveSpec;
use crate::cluster::facts::all_facts;
use crate::cluster::fake::mk_deployment;
use crate::cluster::nodes::Nodes;
use crate::cluster::snapshot::fixture::{mk_effective, mk_new};
use crate::controller::build::slot::Slot;
use crate::controller::plan::Desired;
use pd_crds::PdDeployment;
use pd_crds::scheduling::GangScheduling;
use pd_protocol::ports::WorkerPorts;
use serde_json::json;
use std::sync::Arc;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn mk_spanning(prefill: i32, decode: i32) -> PdDeployment {
    let mut deployment = mk_deployment("a", "ns");
    let spec = &mut deployment.spec;
    spec.engine.kind = pd_crds::engine::EngineKind::Sglang;
    spec.engine.image = Some("sglang".to_owned());
    spec.security.peers = pd_crds::security::PeerTrust::Plain;
    for (pool, nodes) in [
        (&mut spec.pools.prefill, prefill),
        (&mut spec.pools.decode, decode),
    ] {
        (pool.tp, pool.nodes, pool.replicas) = (nodes, nodes, Some(2));
    }
    deployment
}

/// Where a pod stands.
#[derive(Clone, Copy)]
enum Is {
    Placed,
    /// No node has room for it.
    Refused,
    /// It serves, and its gang had all of its nodes.
    Whole,
}

/// The pod of a slot that was made at a second, and got its node at once.
fn mk_pod(
    effective: &EffectiveSpec,
    role: PoolRole,
    ordinal: u32,
    (gang, made, is): (Option<&Gang>, i64, Is),
) -> Pod {
    let pool = effective.resources.pool(role);
    let pod = pool.pod_of(Slot::first(ordinal), WorkerPorts::WELL_KNOWN, gang);
    let mut pod = json!(pod);
    pod["metadata"]["creationTimestamp"] = json!(at(made).to_string());
    pod["metadata"]["uid"] = json!(format!("{role:?}{ordinal}"));
    let condition = |name: &str, status: &str| {
        json!({
            "type": name, "status": status, "reason": "Unschedulable", "message": "no room",
            "lastTransitionTime": at(made).to_string(),
        })
    };
    let conditions = match is {
        Is::Placed => vec![condition("PodScheduled", "True")],
        Is::Refused => vec![condition("PodScheduled", "False")],
        Is::Whole => vec![
            condition("PodScheduled", "True"),
            condition(labels::ROUTABLE_GATE, "True"),
        ],
    };
    if matches!(is, Is::Whole) {
        pod["metadata"]["labels"][labels::GANG_WHOLE] = json!("true");
    }
    if !matches!(is, Is::Refused) {
        pod["spec"]["nodeName"] = json!("n");
    }
    pod["status"] = json!({"phase": "Pending", "conditions": conditions});
    serde_json::from_value(pod).expect("a Pod")
}

fn mk_snapshot<'a>(effective: &'a EffectiveSpec, pods: &[Pod], now: i64) -> Snapshot<'a> {
    let shared = pods.iter().cloned().map(Arc::new).collect();
    let pods = all_facts(effective.deployment(), shared, &Nodes::default());
    Snapshot {
        gangs: Gangs::of(&pods, None, Vec::new),
        pods,
        now: at(now),
        ..mk_new(effective)
    }
}

fn wants(effective: &EffectiveSpec) -> Vec<Desired> {
    let pools = ROLES.into_iter();
    let pools = pools.map(|role| {
        let pool = effective.resources.pool(role);
        pool.desired(&effective.deployment().spec, pool.replicas)
    });
    pools.collect()
}

fn placed(snapshot: &Snapshot<'_>, role: PoolRole, ordinal: u32) -> Placing {
    let desired = wants(snapshot.effective);
    let slot = Slot::first(ordinal);
    placing(snapshot, &desired, (role, slot), &mut Vec::new())
}

fn pair(size: u32) -> Gang {
    Gang {
        name: "a-3e8".to_owned(),
        size,
    }
}

#[test]
fn the_first_of_both_pools_are_a_gang_and_the_rest_comes_beside_it() {
    let effective = mk_effective(&mk_spanning(1, 1));
    let nothing = mk_snapshot(&effective, &[], 1);
    let (desired, mut begun) = (wants(&effective), Vec::new());
    let all = [
        (PoolRole::Prefill, 0),
        (PoolRole::Prefill, 1),
        (PoolRole::Decode, 0),
        (PoolRole::Decode, 1),
    ];
    let all = all.map(|(role, ordinal)| {
        placing(&nothing, &desired, (role, Slot::first(ordinal)), &mut begun)
    });
    let first = || Placing::In(pair(2));
    assert_eq!(all, [first(), Placing::Alone, first(), Placing::Alone]);

    let prefill = (Some(&pair(2)), 1, Is::Placed);
    let begun = [
        mk_pod(&effective, PoolRole::Prefill, 0, prefill),
        mk_pod(&effective, PoolRole::Prefill, 1, (None, 1, Is::Placed)),
    ];
    let begun = mk_snapshot(&effective, &begun, 9);
    assert_eq!(placed(&begun, PoolRole::Decode, 0), first());
}

#[test]
fn one_that_began_without_gangs_goes_on_without() {
    let effective = mk_effective(&mk_spanning(1, 1));
    let pods = [mk_pod(
        &effective,
        PoolRole::Prefill,
        0,
        (None, 1, Is::Placed),
    )];
    let begun = mk_snapshot(&effective, &pods, 9);
    assert_eq!(placed(&begun, PoolRole::Decode, 0), Placing::Alone);
}

#[test]
fn with_the_first_pair_all_is_given_back_that_came_beside_it() {
    let effective = mk_effective(&mk_spanning(1, 1));
    let (gang, refused) = (pair(2), Is::Refused);
    let pods = [
        mk_pod(&effective, PoolRole::Prefill, 0, (Some(&gang), 1, refused)),
        mk_pod(&effective, PoolRole::Decode, 0, (Some(&gang), 1, refused)),
        mk_pod(&effective, PoolRole::Decode, 1, (None, 1, Is::Placed)),
    ];
    assert_eq!(to_release(&mk_snapshot(&effective, &pods, 300)).count(), 0);
    let snapshot = mk_snapshot(&effective, &pods, 301);
    assert_eq!(to_release(&snapshot).count(), 3);
    assert_eq!(remembered(&snapshot).map(|it| it.times), Some(1));
}

#[test]
fn once_a_pair_has_its_nodes_only_replicas_that_span_nodes_are_gangs() {
    let effective = mk_effective(&mk_spanning(2, 1));
    let gang = pair(2);
    let pods = ROLES.map(|role| mk_pod(&effective, role, 0, (Some(&gang), 1, Is::Placed)));
    let there = mk_snapshot(&effective, &pods, 1);
    assert_eq!(there.gangs.gathering, []);
    assert_eq!(placed(&there, PoolRole::Decode, 1), Placing::Alone);
    let own = Gang {
        name: "a-prefill1-3e8".to_owned(),
        size: 2,
    };
    assert_eq!(placed(&there, PoolRole::Prefill, 1), Placing::In(own));
}

#[test]
fn without_gangs_every_pod_is_on_its_own() {
    let mut deployment = mk_spanning(2, 2);
    deployment.spec.scheduling.gang = GangScheduling::None;
    let effective = mk_effective(&deployment);
    let snapshot = mk_snapshot(&effective, &[], 1);
    assert_eq!(placed(&snapshot, PoolRole::Prefill, 0), Placing::Alone);
}

/// Prefill of the first pair has a node, and no node has room for decode.
fn mk_half(effective: &EffectiveSpec, gang: &Gang) -> [Pod; 2] {
    [
        mk_pod(effective, PoolRole::Prefill, 0, (Some(gang), 1, Is::Placed)),
        mk_pod(effective, PoolRole::Decode, 0, (Some(gang), 1, Is::Refused)),
    ]
}

#[test]
fn nodes_that_it_cannot_use_are_given_back_in_time() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let pods = mk_half(&effective, &pair(2));
    let released = |now| {
        let snapshot = mk_snapshot(&effective, &pods, now);
        let released = to_release(&snapshot).map(|(facts, _)| facts.pod.name_any());
        (released.collect::<Vec<_>>(), remembered(&snapshot))
    };
    assert_eq!(released(300), (Vec::new(), None));
    let times = Some(Released {
        at: at(301),
        times: 1,
        placed: 1,
        size: 2,
        generation: Some(1),
    });
    let both = ["a-prefill-0-1", "a-decode-0-1"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(released(301), (both, times));
}

#[test]
fn the_eldest_that_waits_keeps_its_nodes_for_twice_as_long() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let pods = mk_half(&effective, &pair(2));
    let mut snapshot = mk_snapshot(&effective, &pods, 301);
    let others = gatherings(pods.iter());
    snapshot.gangs = Gangs::of(&snapshot.pods, None, || others);
    assert_eq!(snapshot.gangs.eldest.as_deref(), Some("a-3e8"));
    assert_eq!(to_release(&snapshot).count(), 0);
    let text = said(&snapshot, None).expect("a word");
    assert!(
        text.ends_with("nodes are given back at 1970-01-01T00:10:01Z"),
        "{text}"
    );
    assert_eq!(timer(&snapshot, None).map(|it| it.as_secs()), Some(300));
    snapshot.now = at(601);
    assert_eq!(to_release(&snapshot).count(), 2);
}

#[test]
fn a_gang_that_waits_as_a_whole_holds_nothing_and_waits_on() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let gang = pair(2);
    let pods = ROLES.map(|role| mk_pod(&effective, role, 0, (Some(&gang), 1, Is::Refused)));
    let snapshot = mk_snapshot(&effective, &pods, 100_000);
    assert_eq!(to_release(&snapshot).count(), 0);
    assert_eq!(
        (said(&snapshot, None), timer(&snapshot, None)),
        (None, None)
    );
}

#[test]
fn one_that_was_whole_once_is_so_after_a_loss() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let serving = (Some(&pair(2)), 1, Is::Whole);
    let pods = [
        mk_pod(&effective, PoolRole::Decode, 0, serving),
        mk_pod(
            &effective,
            PoolRole::Prefill,
            1,
            (Some(&pair(2)), 2, Is::Refused),
        ),
    ];
    assert_eq!(mk_snapshot(&effective, &pods, 10_000).gangs.gathering, []);
}

#[test]
fn one_that_gave_back_its_nodes_waits_longer_each_time_and_says_so() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let released = |times| {
        Some(Released {
            at: at(1000),
            times,
            placed: 1,
            size: 2,
            generation: Some(1),
        })
    };
    for (times, waits) in [(1, 300), (2, 600), (4, 2400), (9, 2400)] {
        let mut snapshot = mk_snapshot(&effective, &[], 1000 + waits - 1);
        snapshot.gangs.released = released(times);
        assert_eq!(placed(&snapshot, PoolRole::Prefill, 0), Placing::Later);
        let text = said(&snapshot, released(times)).expect("a word");
        assert!(text.contains("the nodes of 1 were given back"), "{text}");
        snapshot.now = at(1000 + waits);
        assert!(matches!(
            placed(&snapshot, PoolRole::Prefill, 0),
            Placing::In(_)
        ));
        assert_eq!(said(&snapshot, released(times)), None);
    }
}

#[test]
fn what_is_whole_is_remembered_as_never_having_given_back() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let serving = (Some(&pair(2)), 1, Is::Whole);
    let pods = ROLES.map(|role| mk_pod(&effective, role, 0, serving));
    let mut snapshot = mk_snapshot(&effective, &pods, 10);
    snapshot.gangs.released = Some(Released {
        at: at(1),
        times: 3,
        placed: 1,
        size: 2,
        generation: Some(1),
    });
    assert_eq!(remembered(&snapshot), None);
    snapshot.pods = Vec::new();
    assert_eq!(remembered(&snapshot), snapshot.gangs.released);
}

#[test]
fn one_that_an_edit_left_with_another_size_begins_again() {
    let effective = mk_effective(&mk_spanning(2, 2));
    let half = mk_half(&effective, &pair(7));
    let snapshot = mk_snapshot(&effective, &half, 2);
    assert_eq!(to_release(&snapshot).count(), 2);
    assert_eq!(remembered(&snapshot), None, "and at once");
}

#[test]
fn an_edit_is_tried_at_once() {
    let mut deployment = mk_deployment("a", "ns");
    deployment.metadata.generation = Some(2);
    let effective = mk_effective(&deployment);
    let mut snapshot = mk_snapshot(&effective, &[], 1001);
    snapshot.gangs.released = Some(Released {
        at: at(1000),
        times: 1,
        placed: 1,
        size: 2,
        generation: Some(1),
    });
    let placing = placed(&snapshot, PoolRole::Prefill, 0);
    assert!(matches!(placing, Placing::In(_)), "{placing:?}");
}

#[test]
fn a_first_pair_beside_which_others_serve_keeps_its_nodes() {
    let effective = mk_effective(&mk_spanning(1, 1));
    let mut pods = mk_half(&effective, &pair(2)).to_vec();
    assert_eq!(to_release(&mk_snapshot(&effective, &pods, 301)).count(), 2);
    pods.extend(ROLES.map(|role| mk_pod(&effective, role, 1, (None, 1, Is::Whole))));
    let snapshot = mk_snapshot(&effective, &pods, 301);
    assert_eq!(to_release(&snapshot).count(), 0);
    assert_eq!(
        (said(&snapshot, None), timer(&snapshot, None)),
        (None, None)
    );
}

#[test]
fn one_that_leaves_is_of_no_whole_gang() {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let mut pods = mk_half(&effective, &pair(2));
    for pod in &mut pods {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::LEAVING_SINCE.to_owned(), at(1).to_string());
    }
    let snapshot = mk_snapshot(&effective, &pods, 2);
    let mut facts = snapshot.pods.iter();
    assert!(facts.all(|facts| !snapshot.gangs.is_whole(facts)));
}
