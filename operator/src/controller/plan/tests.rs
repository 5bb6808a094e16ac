//! Facts about the next step, one state at a time; `runs` follows whole ways.

mod engines;
mod runs;

use super::*;
use crate::controller::build::component::Component::{Decode, Prefill, Router};
use pd_protocol::Role;
use pd_protocol::workers::WorkerSpec;

fn mk_desired(component: Component, replicas: u32, revision: &str) -> Desired {
    let surge = u32::from(component != Router);
    Desired {
        component,
        replicas,
        revision: revision.to_owned(),
        surge,
        unavailable: 1 - surge,
        paused: false,
        nodes: 1,
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
        admitted: true,
        disposition: NodeDisposition::Keep,
        degraded: false,
        gathers: false,
        leaving: None,
    }
}

fn mk_listed(pod: &ObservedPod, state: WorkerState) -> WorkerStatus {
    let role = pod.component.worker_role().unwrap_or(Role::Unified);
    WorkerStatus {
        spec: WorkerSpec {
            id: pod.name.clone(),
            role,
            url: "http://127.1.1.1:30000".to_owned(),
            bootstrap_host: None,
            bootstrap_port: None,
            given_kv_compat: None,
        },
        state,
        circuit_open: false,
        in_flight: 0,
        kv_compat: None,
        boot_id: None,
        weights: None,
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
        ..Observed::default()
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
        ..Observed::default()
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
fn a_smaller_pool_loses_a_degraded_pod_before_a_healthy_one() {
    let mut observed = mk_settled();
    observed.pods.push(mk_pod(Decode, 1, "a"));
    observed.pods[2].degraded = true;
    let actions = plan(&mk_wanted(1, 1, "a"), &observed);
    assert!(actions.contains(&leaves("decode-0-1")), "{actions:?}");
    assert!(!actions.contains(&leaves("decode-1-1")), "{actions:?}");
    // One that does not serve at all is no loss.
    observed.pods[3].ready = false;
    let actions = plan(&mk_wanted(1, 1, "a"), &observed);
    assert!(actions.contains(&leaves("decode-1-1")), "{actions:?}");
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
fn a_worker_that_does_not_answer_is_asked_again_until_its_deadline() {
    let mut observed = mk_settled();
    let mut leaving = Leaving {
        unanswered: true,
        ..Leaving::default()
    };
    observed.routers[0].workers.as_mut().unwrap()[1].state = WorkerState::Cordoned;
    observed.pods[2].leaving = Some(leaving);
    let pod = || "decode-0-1".to_owned();
    assert_eq!(plan(&[], &observed), vec![Action::Drain { pod: pod() }]);
    leaving.past_deadline = true;
    observed.pods[2].leaving = Some(leaving);
    assert_eq!(plan(&[], &observed), vec![Action::Terminate { pod: pod() }]);
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

#[test]
fn a_worker_on_a_cordoned_node_is_replaced_before_it_leaves() {
    let mut observed = mk_settled();
    observed.pods[2].disposition = NodeDisposition::Evacuate;
    let wanted = mk_wanted(1, 1, "a");
    let create = Action::Create {
        component: Decode,
        ordinal: 1,
    };
    assert_eq!(plan(&wanted, &observed), vec![create]);
    let second = mk_pod(Decode, 1, "a");
    let listed = mk_listed(&second, WorkerState::Serving);
    observed.routers[0].workers.as_mut().unwrap().push(listed);
    observed.pods.push(second);
    assert_eq!(plan(&wanted, &observed), vec![leaves("decode-0-1")]);
}

#[test]
fn a_pause_holds_back_a_revision_but_not_a_move() {
    let mut wanted = mk_wanted(1, 1, "b");
    wanted.iter_mut().for_each(|pool| pool.paused = true);
    let mut observed = mk_settled();
    observed.pods[2].disposition = NodeDisposition::Evacuate;
    let create = Action::Create {
        component: Decode,
        ordinal: 1,
    };
    assert_eq!(plan(&wanted, &observed), vec![create]);
}

#[test]
fn a_worker_on_a_lost_node_leaves_and_is_replaced_at_once() {
    let mut observed = mk_settled();
    observed.pods[1].disposition = NodeDisposition::Lost;
    let create = Action::Create {
        component: Prefill,
        ordinal: 1,
    };
    assert_eq!(
        plan(&mk_wanted(1, 1, "a"), &observed),
        vec![create, leaves("prefill-0-1")]
    );
}

/// A spec that never worked does not hold its place against the one that mends it.
#[test]
fn a_worker_that_never_served_makes_way_for_the_next_revision() {
    let mut observed = mk_settled();
    (observed.pods[2].ready, observed.pods[2].admitted) = (false, false);
    let actions = plan(&mk_wanted(1, 1, "b"), &observed);
    assert!(actions.contains(&leaves("decode-0-1")), "{actions:?}");
    assert!(!actions.contains(&leaves("prefill-0-1")), "{actions:?}");
}

#[test]
fn a_pools_replicas_that_span_nodes_begin_one_after_the_other() {
    let mut desired = mk_wanted(3, 2, "a");
    for pool in &mut desired[1..] {
        pool.nodes = 2;
    }
    let begun = |observed: &Observed| {
        let actions = plan(&desired, observed);
        let created = actions.into_iter().filter_map(|action| match action {
            Action::Create { component, .. } => Some(component),
            Action::Leave { .. }
            | Action::Register { .. }
            | Action::Cordon { .. }
            | Action::Deregister { .. }
            | Action::Drain { .. }
            | Action::Terminate { .. } => None,
        });
        created.collect::<Vec<_>>()
    };
    let mut observed = mk_settled();
    assert_eq!(begun(&observed), [Prefill, Decode], "one each");
    observed.pods[1].gathers = true;
    assert_eq!(begun(&observed), [Decode], "prefill's gathers its nodes");
    observed.pods[1].leaving = Some(Leaving::default());
    assert_eq!(begun(&observed), [Prefill, Decode], "and leaves");
}
