//! Whole replicas within bounds and budget.

use super::super::decision::Limit;
use super::super::per_role::PerRole;
use super::super::solution::{Asked, Solution, solve};
use super::super::{ScalingSpec, spec::Bounds};
use super::{mk_pools, mk_spec};

fn solved(prefill: f64, decode: f64, spec: &ScalingSpec) -> (PerRole<u32>, Limit) {
    let needs = PerRole {
        prefill: Asked::just(prefill),
        decode: Asked::just(decode),
    };
    let Solution {
        replicas,
        limited_by,
        needs: _,
    } = solve(needs, spec.bounds, spec);
    (replicas, limited_by)
}

#[test]
fn needs_are_rounded_up() {
    let spec = mk_spec();
    assert_eq!(solved(4.3, 2.0, &spec), (mk_pools(5, 2), Limit::None));
    assert_eq!(solved(0.0, 0.0, &spec), (mk_pools(1, 1), Limit::None));
}

#[test]
fn bounds_limit() {
    let spec = ScalingSpec {
        bounds: PerRole::of(|_| Bounds { min: 2, max: 4 }),
        ..mk_spec()
    };
    assert_eq!(solved(9.0, 1.0, &spec), (mk_pools(4, 2), Limit::Bounds));
}

#[test]
fn a_budget_never_gives_a_pool_more_than_it_needs() {
    // Another operator's clamp made 2 prefill and 4 decode replicas of this.
    let spec = ScalingSpec {
        gpus: PerRole {
            prefill: 8,
            decode: 1,
        },
        max_gpus: Some(20),
        ..mk_spec()
    };
    assert_eq!(solved(10.0, 1.0, &spec), (mk_pools(2, 1), Limit::Budget));
}

#[test]
fn a_budget_is_shared_by_need() {
    let spec = ScalingSpec {
        max_gpus: Some(8),
        ..mk_spec()
    };
    assert_eq!(solved(9.0, 3.0, &spec), (mk_pools(6, 2), Limit::Budget));
    assert_eq!(solved(3.0, 9.0, &spec), (mk_pools(2, 6), Limit::Budget));
    assert_eq!(solved(8.0, 8.0, &spec), (mk_pools(4, 4), Limit::Budget));
}

#[test]
fn what_the_worse_served_cannot_use_goes_to_the_other() {
    let spec = ScalingSpec {
        gpus: PerRole {
            prefill: 4,
            decode: 1,
        },
        max_gpus: Some(11),
        ..mk_spec()
    };
    assert_eq!(solved(8.0, 4.0, &spec), (mk_pools(2, 3), Limit::Budget));
}

#[test]
fn what_comes_goes_before_what_waits() {
    let spec = ScalingSpec {
        max_gpus: Some(8),
        ..mk_spec()
    };
    let asked = |flow, all| Asked { flow, all };
    let needs = PerRole {
        prefill: asked(2.0, 90.0),
        decode: asked(5.0, 6.0),
    };
    let Solution { replicas, .. } = solve(needs, spec.bounds, &spec);
    assert_eq!(replicas, mk_pools(3, 5));
}
