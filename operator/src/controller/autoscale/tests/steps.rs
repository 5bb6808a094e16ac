//! Which step is taken, and what holds one up.

use super::super::decision::{Limit, Reason};
use super::super::observations::ReplicaState;
use super::super::per_role::PerRole;
use super::super::spec::Bounds;
use super::super::{Decision, History, ScalingSpec};
use super::{MODES, World, mk_pools, mk_spec, mk_world, seconds};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pd_crds::scaling::ScalingMode;
use pd_crds::status::{DECISIONS_MAX, MESSAGE_BYTES_MAX};

const WHOLE_WINDOW: u64 = 310;

fn outcome(decision: &Decision) -> (PerRole<u32>, Reason, Limit) {
    (decision.to, decision.reason, decision.limited_by)
}

/// Three prefill and four decode replicas that need two and three.
fn mk_idle() -> World {
    mk_world(4, 5)
}

#[test]
fn a_pool_grows_to_its_need_after_the_window() {
    let world = World {
        rate: 40.0,
        ..mk_world(1, 12)
    };
    let (pools, spec) = (mk_pools(1, 12), mk_spec());
    let early = world.decide_for(pools, &spec, 6);
    assert_eq!((early.to, early.limited_by), (pools, Limit::Stabilization));
    let late = world.decide_for(pools, &spec, 30);
    let grown = mk_pools(5, 12);
    assert_eq!(outcome(&late), (grown, Reason::PrefillTokens, Limit::None));
}

#[test]
fn requests_that_wait_too_long_wait_for_no_window() {
    let mut world = World {
        rate: 40.0,
        ..mk_world(1, 12)
    };
    world.gauges.prefill.queue_age_s = 1.1;
    let decision = world.decide_for(mk_pools(1, 12), &mk_spec(), 2);
    assert!(decision.to.prefill >= 5, "{decision:?}");
}

#[test]
fn replicas_that_start_count_as_supply() {
    let mut world = World {
        rate: 40.0,
        ..mk_world(1, 12)
    };
    world.states.prefill.extend([ReplicaState::Starting; 4]);
    let decision = world.decide_for(mk_pools(5, 12), &mk_spec(), 60);
    assert_eq!(decision.to, mk_pools(5, 12));
}

#[test]
fn a_pool_shrinks_by_one_after_the_window() {
    let (pools, spec) = (mk_pools(4, 5), mk_spec());
    let early = mk_idle().decide_for(pools, &spec, 200);
    assert_eq!(
        outcome(&early),
        (pools, Reason::Steady, Limit::Stabilization)
    );
    let late = mk_idle().decide_for(pools, &spec, WHOLE_WINDOW);
    let shrunk = mk_pools(3, 4);
    assert_eq!(outcome(&late), (shrunk, Reason::FallingDemand, Limit::None));
}

#[test]
fn a_pool_keeps_what_it_could_not_do_without() {
    // 10 req/s × 3000 tokens are 1.4 replicas, seven tenths full.
    let decision = mk_world(2, 4).decide_for(mk_pools(2, 4), &mk_spec(), 1000);
    assert_eq!(
        outcome(&decision),
        (mk_pools(2, 4), Reason::Steady, Limit::None)
    );
}

#[test]
fn a_load_within_the_window_holds_a_pool() {
    let (pools, spec) = (mk_pools(4, 5), mk_spec());
    let busy = World {
        rate: 20.0,
        ..mk_idle()
    };
    let (_, history) = mk_idle().decide_on(pools, &spec, 0..=300, History::default());
    let (_, history) = busy.decide_on(pools, &spec, 301..=320, history);
    let (held, _) = mk_idle().decide_on(pools, &spec, 321..=500, history);
    assert_eq!((held.to, held.limited_by), (pools, Limit::Stabilization));
}

#[test]
fn a_load_that_made_a_pool_grow_holds_it_for_the_window() {
    let (small, grown, spec) = (mk_pools(2, 4), mk_pools(4, 4), mk_spec());
    let mut busy = mk_world(2, 4);
    busy.gauges.prefill.queue_tokens = 110_000.0;
    let (_, history) = mk_world(2, 4).decide_on(small, &spec, 0..=400, History::default());
    let (asked, history) = busy.decide_on(small, &spec, 401..=420, history);
    assert!(asked.to.prefill > 2, "{asked:?}");
    let (held, _) = mk_world(4, 4).decide_on(grown, &spec, 421..=500, history);
    assert_eq!((held.to, held.limited_by), (grown, Limit::Stabilization));
}

#[test]
fn a_pool_with_a_silent_replica_does_not_shrink() {
    let world = World {
        silent: (1, seconds(16)),
        ..mk_idle()
    };
    let decision = world.decide_for(mk_pools(4, 5), &mk_spec(), 1000);
    assert_eq!(
        (decision.to, decision.limited_by),
        (mk_pools(4, 5), Limit::StaleMetrics)
    );
    let world = World {
        router_queue: None,
        ..mk_idle()
    };
    let decision = world.decide_for(mk_pools(4, 5), &mk_spec(), 1000);
    assert_eq!(
        (decision.to, decision.limited_by),
        (mk_pools(4, 5), Limit::StaleMetrics)
    );
}

#[test]
fn a_pool_does_not_shrink_while_a_rollout_waits() {
    let world = World {
        rollout_unready: true,
        ..mk_idle()
    };
    let decision = world.decide_for(mk_pools(4, 5), &mk_spec(), WHOLE_WINDOW);
    assert_eq!(
        (decision.to, decision.limited_by),
        (mk_pools(4, 5), Limit::Rollout)
    );
}

#[test]
fn one_replica_leaves_at_a_time() {
    for state in [ReplicaState::Leaving, ReplicaState::Starting] {
        let mut world = mk_idle();
        world.states.prefill[3] = state;
        world.states.decode[4] = state;
        let decision = world.decide_for(mk_pools(4, 5), &mk_spec(), WHOLE_WINDOW);
        assert_eq!(
            (decision.to, decision.limited_by),
            (mk_pools(4, 5), Limit::OneAtATime)
        );
    }
}

#[test]
fn at_the_budget_the_donor_goes_first() {
    let spec = ScalingSpec {
        max_gpus: Some(8),
        ..mk_spec()
    };
    let mut world = World {
        rate: 40.0,
        output: 30.0,
        ..mk_world(2, 6)
    };
    let decision = world.decide_for(mk_pools(2, 6), &spec, 30);
    let given = mk_pools(2, 5);
    assert_eq!((decision.to, decision.reason), (given, Reason::Rebalance));
    // Asked to leave, it still holds its GPU.
    world.states.decode[5] = ReplicaState::Leaving;
    let decision = world.decide_for(given, &spec, 30);
    assert_eq!(decision.to, given);
    world.states.decode.pop();
    let decision = world.decide_for(given, &spec, 30);
    assert_eq!(decision.to.prefill, 3);
}

#[test]
fn a_scale_up_without_nodes_is_given_up_and_tried_again() {
    let (asked, got) = (mk_pools(5, 12), mk_pools(2, 12));
    let spec = mk_spec();
    let mut world = World {
        rate: 40.0,
        ..mk_world(2, 12)
    };
    world
        .states
        .prefill
        .extend([ReplicaState::Unschedulable; 3]);
    let (waits, history) = world.decide_on(asked, &spec, 0..=100, History::default());
    assert_eq!(waits.to, asked);
    let (given_up, history) = world.decide_on(asked, &spec, 101..=125, history);
    let expected = (got, Reason::CapacityUnavailable, Limit::CapacityUnavailable);
    assert_eq!(outcome(&given_up), expected);
    world.states.prefill.truncate(2);
    let (held, history) = world.decide_on(got, &spec, 126..=400, history);
    assert_eq!(
        (held.to, held.limited_by),
        (got, Limit::CapacityUnavailable)
    );
    let (again, _) = world.decide_on(got, &spec, 401..=440, history.clone());
    assert_eq!(again.to, asked);
    world.room_came = Some(seconds(400));
    let (soon, _) = world.decide_on(got, &spec, 401..=415, history);
    assert_eq!(soon.to, asked);
}

#[test]
fn the_other_pool_moves_while_one_has_no_nodes() {
    let mut world = World {
        rate: 40.0,
        ..mk_world(2, 3)
    };
    world
        .states
        .prefill
        .extend([ReplicaState::Unschedulable; 3]);
    let decision = world.decide_for(mk_pools(5, 3), &mk_spec(), 60);
    assert!(decision.to.decode > 3, "{decision:?}");
}

#[test]
fn falling_demand_cancels_what_has_no_node() {
    let mut world = World {
        rate: 1.0,
        ..mk_world(2, 5)
    };
    world
        .states
        .prefill
        .extend([ReplicaState::Unschedulable; 3]);
    let decision = world.decide_for(mk_pools(5, 5), &mk_spec(), 12);
    assert_eq!(
        (decision.to, decision.reason),
        (mk_pools(2, 5), Reason::FallingDemand)
    );
}

#[test]
fn changed_bounds_are_followed_at_once() {
    let spec = ScalingSpec {
        bounds: PerRole::of(|_| Bounds { min: 2, max: 3 }),
        ..mk_spec()
    };
    let decision = mk_world(1, 5).decide_for(mk_pools(1, 5), &spec, 0);
    assert_eq!(
        (decision.to, decision.reason),
        (mk_pools(2, 3), Reason::Bounds)
    );
}

#[test]
fn only_auto_changes_anything() {
    let changes = MODES.map(|mode| {
        let spec = ScalingSpec { mode, ..mk_spec() };
        let decision = mk_idle().decide_for(mk_pools(4, 5), &spec, WHOLE_WINDOW);
        let advised = decision.to != decision.from;
        (decision.change().is_some(), advised)
    });
    assert_eq!(
        changes,
        [(true, true), (false, true), (false, false), (false, false)]
    );
}

#[test]
fn nonsense_is_refused_by_name_and_moves_nothing() {
    let (pools, spec) = (mk_pools(4, 5), mk_spec());
    let (_, history) = mk_idle().decide_on(pools, &spec, 0..=290, History::default());
    let mut observations = mk_idle().observe(pools, seconds(291));
    let sample = observations.replicas[0].sample.as_mut().unwrap();
    sample.counters.requests = 0.0;
    let (decision, _) = super::decide(&observations, history, &spec, seconds(291));
    let (uid, error) = &decision.refused[0];
    assert_eq!(uid, "Prefill-0");
    assert!(
        error.to_string().starts_with("requests went from"),
        "{error}"
    );
    assert_eq!(decision.to, pools);
}

#[test]
fn the_status_keeps_the_last_decisions_that_say_something() {
    let mut decisions = Vec::new();
    let time = || Time(Timestamp::UNIX_EPOCH);
    let spec = mk_spec();
    let rests = mk_world(2, 4).decide_for(mk_pools(2, 4), &spec, 60);
    rests.append_to(&mut decisions, time());
    assert_eq!(decisions, []);
    let held = mk_idle().decide_for(mk_pools(4, 5), &spec, 200);
    held.append_to(&mut decisions, time());
    held.append_to(&mut decisions, time());
    let unknown = World {
        router_queue: None,
        ..mk_idle()
    };
    let stale = unknown.decide_for(mk_pools(4, 5), &spec, 200);
    stale.append_to(&mut decisions, time());
    let limits: Vec<_> = decisions
        .iter()
        .map(|decisions| &*decisions.limited_by)
        .collect();
    assert_eq!(
        limits,
        ["StaleMetrics"],
        "what is held up is decisions once"
    );
    held.append_to(&mut decisions, time());
    let shrinks = mk_idle().decide_for(mk_pools(4, 5), &spec, WHOLE_WINDOW);
    shrinks.append_to(&mut decisions, time());
    insta::assert_yaml_snapshot!(decisions);
    for _ in 0..20 {
        shrinks.append_to(&mut decisions, time());
    }
    assert_eq!(decisions.len(), DECISIONS_MAX);
    assert!(
        decisions
            .iter()
            .all(|decisions| decisions.message.len() <= MESSAGE_BYTES_MAX)
    );
}

#[test]
fn external_and_off_say_what_demand_would_need() {
    let spec = ScalingSpec {
        mode: ScalingMode::External,
        ..mk_spec()
    };
    let decision = mk_world(4, 5).decide_for(mk_pools(4, 5), &spec, 60);
    assert!(decision.needs.prefill.is_some_and(|need| need > 1.0));
}

#[test]
fn history_survives_serialization() {
    let (pools, spec) = (mk_pools(4, 5), mk_spec());
    let (_, history) = mk_idle().decide_on(pools, &spec, 0..=100, History::default());
    let json = serde_json::to_string(&history).unwrap();
    let read: History = serde_json::from_str(&json).unwrap();
    let later = |history| mk_idle().decide_on(pools, &spec, 101..=WHOLE_WINDOW, history);
    assert_eq!(later(read).0.to, later(history).0.to);
}
