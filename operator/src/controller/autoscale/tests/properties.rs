//! Properties of every decision, for any observation.

use super::super::decision::Limit;
use super::super::exposition::parse;
use super::super::observations::ReplicaState;
use super::super::per_role::{PerRole, ROLES};
use super::super::sample::{Gauges, StateSlots};
use super::super::solution::{Asked, solve};
use super::super::spec::{Bounds, ScalingSpec};
use super::super::{History, decide};
use super::{World, mk_pools, mk_spec, mk_world, seconds};
use proptest::prelude::*;

/// States, most of them serving.
fn states(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<ReplicaState>> {
    let state = prop_oneof![
        12 => Just(ReplicaState::Serving),
        1 => Just(ReplicaState::Starting),
        1 => Just(ReplicaState::Leaving),
        1 => Just(ReplicaState::Unschedulable),
    ];
    prop::collection::vec(state, len)
}

fn gauges() -> impl Strategy<Value = Gauges> {
    let share = 0.0..=1.0f64;
    let slots = (1.0..1e4f64, share.clone()).prop_map(|(total, used)| StateSlots {
        used: total * used,
        total,
    });
    let slots = prop::option::of(slots);
    (
        0.0..1e6f64,
        0.0..60.0f64,
        0.0..1e6f64,
        share.clone(),
        share,
        slots,
    )
        .prop_map(
            |(queue_tokens, queue_age_s, capacity_tokens, used, reserved, slots)| Gauges {
                running: 4.0,
                queue_tokens,
                queue_age_s,
                used_tokens: capacity_tokens * used,
                reserved_tokens: capacity_tokens * used * reserved,
                capacity_tokens,
                slots,
            },
        )
}

prop_compose! {
    fn worlds()(
        prefill in states(0..12),
        decode in states(0..12),
        of_prefill in gauges(),
        of_decode in gauges(),
        rate in 0.0..200.0f64,
        input in 1.0..20_000.0f64,
        output in 1.0..5000.0f64,
        itl_s in 0.001..0.5f64,
        speed in 10.0..1e6f64,
        router_queue in prop::option::of(0.0..500.0f64),
        degraded in (0..4usize, 0..4usize),
        silent in 0..3usize,
        rollout_unready in any::<bool>(),
        room_came in prop::option::of(0..400u64),
    ) -> World {
        World {
            rate,
            input,
            output,
            itl_s,
            speed,
            gauges: PerRole { prefill: of_prefill, decode: of_decode },
            states: PerRole { prefill, decode },
            router_queue,
            degraded: PerRole { prefill: degraded.0, decode: degraded.1 },
            silent: (silent, seconds(60)),
            rollout_unready,
            room_came: room_came.map(seconds),
            ..mk_world(0, 0)
        }
    }
}

prop_compose! {
    fn specs()(
        mins in (1..4u32, 1..4u32),
        more in (0..12u32, 0..12u32),
        gpus in (1..5u32, 1..5u32),
        spare in prop::option::of(0..40u32),
        goals in prop::option::of((0.01..10.0f64, 0.001..0.5f64)),
        shares_nodes in any::<bool>(),
    ) -> ScalingSpec {
        let bounds = PerRole {
            prefill: Bounds { min: mins.0, max: mins.0 + more.0 },
            decode: Bounds { min: mins.1, max: mins.1 + more.1 },
        };
        let gpus = PerRole { prefill: gpus.0, decode: gpus.1 };
        let least = bounds.prefill.min * gpus.prefill + bounds.decode.min * gpus.decode;
        ScalingSpec {
            bounds,
            gpus,
            shares_nodes,
            max_gpus: spare.map(|spare| least + spare),
            ttft_s: goals.map(|goals| goals.0),
            tpot_s: goals.map(|goals| goals.1),
            down_window: seconds(20),
            ..mk_spec()
        }
    }
}

fn within(to: PerRole<u32>, spec: &ScalingSpec) -> bool {
    ROLES
        .into_iter()
        .all(|role| spec.bounds[role].clamp(to[role]) == to[role])
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(.|\n|[a-z_]{1,3}(\\{[a-z\"=]*\\})? [0-9.e+-]{1,4}\n){0,40}") {
        if let Ok(said) = parse(&text) {
            prop_assert!(said.plain.keys().all(|name| text.contains(name)));
            prop_assert!(said.labelled.iter().all(|sample| text.contains(sample.name)));
        }
    }

    #[test]
    fn a_decision_is_within_bounds_and_budget(
        worlds in prop::collection::vec(worlds(), 1..4),
        spec in specs(),
        targets in (0..20u32, 0..20u32),
    ) {
        let mut history = History::default();
        let mut targets = mk_pools(targets.0, targets.1);
        for (world, from) in worlds.iter().zip([0, 100, 200u64]) {
            for at in from..from + 40 {
                let observations = world.observe(targets, seconds(at));
                let (decision, next) = decide(&observations, history, &spec, seconds(at));
                history = next;
                targets = decision.to;
                prop_assert!(within(targets, &spec), "{decision:?}");
                prop_assert!(spec.affords(targets), "{decision:?}");
            }
        }
    }

    #[test]
    fn no_pool_grows_beyond_its_need(
        world in worlds(), spec in specs(), targets in (1..20u32, 1..20u32),
    ) {
        let decision = world.decide_for(mk_pools(targets.0, targets.1), &spec, 30);
        for role in ROLES {
            let (from, to) = (decision.from[role], decision.to[role]);
            let need = decision.needs[role].map_or(0.0, f64::ceil);
            let floor = f64::from(spec.bounds[role].min.max(from));
            prop_assert!(f64::from(to) <= need.max(floor), "{decision:?}");
        }
    }

    #[test]
    fn what_is_old_or_missing_shrinks_no_pool(
        mut world in worlds(), spec in specs(), targets in (1..20u32, 1..20u32),
    ) {
        world.states.prefill.insert(0, ReplicaState::Serving);
        world.silent.0 = world.silent.0.max(1);
        world.states = PerRole::of(|role| {
            let placed = |state: &ReplicaState| *state != ReplicaState::Unschedulable;
            world.states[role].iter().copied().filter(placed).collect()
        });
        let targets = PerRole {
            prefill: spec.bounds.prefill.clamp(targets.0),
            decode: spec.bounds.decode.clamp(targets.1),
        };
        prop_assume!(spec.affords(targets));
        let decision = world.decide_for(targets, &spec, 60);
        for role in ROLES {
            prop_assert!(decision.to[role] >= targets[role], "{decision:?}");
        }
    }

    #[test]
    fn more_demand_never_gives_fewer_replicas(
        world in worlds(), mut spec in specs(), more in 1.0..5.0f64,
    ) {
        spec.max_gpus = None;
        let targets = PerRole::of(|role| spec.bounds[role].min);
        let busier = World { rate: world.rate * more, ..world.clone() };
        let longer = World { input: world.input * more, ..world.clone() };
        let wordier = World { output: world.output * more, ..world.clone() };
        let decision = world.decide_for(targets, &spec, 30);
        // While too little was seen, a queue is taken to need room all at once; more demand also shows
        // that it does not.
        prop_assume!(decision.limited_by != Limit::NoEstimate);
        let to = decision.to;
        for world in [busier, longer, wordier] {
            let decision = world.decide_for(targets, &spec, 30);
            for role in ROLES {
                prop_assert!(decision.to[role] >= to[role], "{to:?}, then {decision:?}");
            }
        }
    }

    #[test]
    fn at_rest_the_same_is_decided_again(
        rate in 0.1..30.0f64, spec in specs(),
    ) {
        let mut targets = PerRole::of(|role| spec.bounds[role].min);
        let mut history = History::default();
        let mut changes = Vec::new();
        for at in 0..400 {
            let count = |replicas: u32| replicas as usize;
            let world = World {
                rate,
                ..mk_world(count(targets.prefill), count(targets.decode))
            };
            let observations = world.observe(targets, seconds(at));
            let (decision, next) = decide(&observations, history, &spec, seconds(at));
            let (again, same) = decide(&observations, next.clone(), &spec, seconds(at));
            prop_assert_eq!(&same, &next);
            prop_assert_eq!(again.to, decision.to);
            history = next;
            if decision.to != targets {
                changes.push((at, decision.to));
            }
            targets = decision.to;
        }
        prop_assert!(changes.iter().all(|(at, _)| *at < 200), "{changes:?}");
    }

    #[test]
    fn a_shared_budget_meets_no_need_twice(
        needs in (0.0..50.0f64, 0.0..50.0f64), spec in specs(),
    ) {
        let needs = PerRole { prefill: needs.0, decode: needs.1 };
        let asked = PerRole::of(|role| Asked::just(needs[role]));
        let solution = solve(asked, spec.bounds, &spec);
        prop_assert!(within(solution.replicas, &spec) && spec.affords(solution.replicas));
        for role in ROLES {
            let most = needs[role].ceil().max(f64::from(spec.bounds[role].min));
            prop_assert!(f64::from(solution.replicas[role]) <= most, "{solution:?}");
        }
        let short = ROLES.into_iter().any(|role| f64::from(solution.replicas[role]) < needs[role]);
        prop_assert_eq!(short, solution.limited_by != Limit::None);
    }

    #[test]
    fn history_is_no_larger_than_the_pools(world in worlds(), spec in specs()) {
        let pools = mk_pools(3, 3);
        let (_, early) = world.decide_on(pools, &spec, 0..=60, History::default());
        let (_, late) = world.decide_on(pools, &spec, 61..=600, early.clone());
        let len = |history: &History| serde_json::to_string(history).unwrap().len();
        prop_assert!(len(&late) < len(&early) + 4000);
    }
}
