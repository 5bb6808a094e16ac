//! Facts about gangs that wait in a queue of Kueue.

use super::*;
use crate::controller::build::gang::GangScheduler;

/// One prefill and one decode, for which Kueue gives quota.
fn mk_queued(shapes: &str) -> EffectiveSpec {
    let mut effective = mk_effective(&mk_spanning(1, 1));
    let resources = &mut effective.resources;
    for pool in [&mut resources.prefill, &mut resources.decode] {
        pool.gangs = Some(GangScheduler::Kueue {
            queue: "gpus".to_owned(),
            shapes: shapes.to_owned(),
        });
    }
    effective
}

/// The pod of a gang for which there is no quota.
fn mk_queued_pod(effective: &EffectiveSpec, role: PoolRole, ordinal: u32, gang: &Gang) -> Pod {
    let mut pod = mk_pod(effective, role, ordinal, (Some(gang), 2, Is::Refused));
    let conditions = pod.status.as_mut().and_then(|it| it.conditions.as_mut());
    conditions.expect("conditions")[0].reason = Some("SchedulingGated".to_owned());
    pod
}

#[test]
fn what_kueue_queues_is_never_alone() {
    let effective = mk_queued("r1");
    let nothing = mk_snapshot(&effective, &[], 1);
    let (desired, mut begun) = (wants(&effective), Vec::new());
    let all = [(PoolRole::Prefill, 0), (PoolRole::Prefill, 1)];
    let all = all.map(|(role, ordinal)| {
        placing(&nothing, &desired, (role, Slot::first(ordinal)), &mut begun)
    });
    let second = Gang {
        name: "a-prefill1-3e8".to_owned(),
        size: 1,
    };
    assert_eq!(all, [Placing::In(pair(2)), Placing::In(second)]);
}

#[test]
fn the_quota_of_a_pair_goes_to_a_replica_in_the_place_of_one_that_went() {
    let effective = mk_queued("r1");
    let decode = (Some(&pair(2)), 1, Is::Whole);
    let decode = mk_pod(&effective, PoolRole::Decode, 0, decode);
    let alone = mk_snapshot(&effective, std::slice::from_ref(&decode), 9);
    assert_eq!(placed(&alone, PoolRole::Prefill, 0), Placing::In(pair(2)));
    let own = |role: &str, ordinal: u32| {
        Placing::In(Gang {
            name: format!("a-{role}{ordinal}-2328"),
            size: 1,
        })
    };
    assert_eq!(placed(&alone, PoolRole::Decode, 1), own("decode", 1));

    // The place is taken as long as a pod has it.
    let prefill = mk_pod(
        &effective,
        PoolRole::Prefill,
        0,
        (Some(&pair(2)), 1, Is::Whole),
    );
    let both = mk_snapshot(&effective, &[prefill.clone(), decode.clone()], 9);
    assert_eq!(placed(&both, PoolRole::Prefill, 1), own("prefill", 1));
    // One that waits meanwhile makes way once the place is free.
    let alone = |role, ordinal| {
        let gang = Gang {
            name: format!("a-{role:?}{ordinal}-2"),
            size: 1,
        };
        mk_queued_pod(&effective, role, ordinal, &gang)
    };
    let waiting = alone(PoolRole::Prefill, 1);
    let names = |pods: &[Pod]| -> Vec<String> {
        let snapshot = mk_snapshot(&effective, pods, 9);
        to_release(&snapshot)
            .map(|(facts, _)| facts.pod.name_any())
            .collect()
    };
    let held = [prefill, decode.clone(), waiting.clone()];
    assert_eq!(names(&held), Vec::<String>::new());
    let free = [decode.clone(), waiting.clone()];
    assert_eq!(names(&free), ["a-prefill-1-1"]);
    // Where nothing else is there, the two halves wait as a pair again.
    let halves = [waiting, alone(PoolRole::Decode, 1)];
    assert_eq!(names(&halves), ["a-prefill-1-1", "a-decode-1-1"]);
    assert_eq!(
        names(&halves[..1]),
        Vec::<String>::new(),
        "no decode is wanted"
    );
    let as_pair = |role| mk_queued_pod(&effective, role, 0, &pair(2));
    let whole = [PoolRole::Prefill, PoolRole::Decode].map(as_pair);
    assert_eq!(names(&whole), Vec::<String>::new());
    // What asks for other quota does not get this one.
    let edited = mk_queued("r2");
    let edited = mk_snapshot(&edited, &[decode], 9);
    assert_eq!(placed(&edited, PoolRole::Prefill, 0), own("prefill", 0));
}
