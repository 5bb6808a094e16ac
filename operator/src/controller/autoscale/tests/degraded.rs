//! Degraded replicas: pools are sized as if they were not there, and they leave first.

use super::super::decision::{Limit, Reason};
use super::super::per_role::PerRole;
use super::super::{Decision, History};
use super::{World, mk_pools, mk_spec, mk_world, seconds};

const WHOLE_WINDOW: u64 = 310;

/// Prefill needs 1.2 replicas to stay as it is, and 1.4 to shrink.
fn mk_degraded(prefill: usize, degraded: usize) -> World {
    World {
        degraded: PerRole {
            prefill: degraded,
            decode: 0,
        },
        ..mk_world(prefill, 4)
    }
}

fn decide_for(world: &World, prefill: u32, long: u64) -> Decision {
    world.decide_for(mk_pools(prefill, 4), &mk_spec(), long)
}

#[test]
fn a_degraded_replica_asks_for_another_one() {
    let decision = decide_for(&mk_degraded(2, 1), 2, 60);
    assert_eq!(
        (decision.to, decision.reason),
        (mk_pools(3, 4), Reason::Degraded)
    );
    let message = decision.message();
    assert!(
        message.starts_with("prefill 2 → 3 (needs 2.2), 1 degraded, decode 4 ("),
        "{message}"
    );
}

#[test]
fn it_goes_once_the_others_can_do_without_it() {
    let early = decide_for(&mk_degraded(3, 1), 3, 200);
    assert_eq!(
        (early.to, early.limited_by),
        (mk_pools(3, 4), Limit::Stabilization)
    );
    let late = decide_for(&mk_degraded(3, 1), 3, WHOLE_WINDOW);
    assert_eq!(
        (late.to, late.reason),
        (mk_pools(2, 4), Reason::FallingDemand)
    );
}

#[test]
fn those_that_stay_stand_in_for_no_one() {
    let shrinks = decide_for(&mk_degraded(4, 2), 4, WHOLE_WINDOW);
    assert_eq!(shrinks.to, mk_pools(3, 4), "two healthy ones are left");
    let holds = decide_for(&mk_degraded(4, 3), 4, WHOLE_WINDOW);
    assert!(holds.to.prefill >= 4, "{holds:?}");
}

#[test]
fn where_all_are_slow_that_is_what_the_pool_can_do() {
    let decision = decide_for(&mk_degraded(2, 2), 2, 60);
    // At half the speed 2.4 are needed.
    assert_eq!(
        (decision.to, decision.reason, decision.degraded.prefill),
        (mk_pools(3, 4), Reason::PrefillTokens, 0)
    );
}

#[test]
fn speed_is_learned_from_healthy_replicas_and_traffic_from_all() {
    let spec = mk_spec();
    let learned = |degraded: PerRole<usize>| {
        let world = World {
            degraded,
            ..mk_world(3, 3)
        };
        let pools = mk_pools(3, 3);
        let (_, history) = world.decide_on(pools, &spec, 0..=60, History::default());
        history.estimates
    };
    let healthy = learned(PerRole::default());
    let mixed = learned(PerRole::of(|_| 1));
    let near = |a: Option<f64>, b: Option<f64>| {
        let (a, b) = a.zip(b).expect("both are known");
        (a / b - 1.0).abs() < 1e-9
    };
    assert!(near(mixed.prefill_speed(), healthy.prefill_speed()));
    assert!(near(mixed.itl_s(), healthy.itl_s()));
    assert!(near(mixed.input_len(), healthy.input_len()));
    assert!(near(mixed.output_len(), healthy.output_len()));
    let slow = learned(PerRole::of(|_| 3));
    assert!(near(
        slow.prefill_speed().map(|speed| 2.0 * speed),
        healthy.prefill_speed()
    ));
}

#[test]
fn what_is_old_says_nothing_of_health() {
    let world = World {
        silent: (1, seconds(16)),
        ..mk_degraded(2, 1)
    };
    let decision = decide_for(&world, 2, 60);
    assert_eq!(decision.degraded.prefill, 0);
}
