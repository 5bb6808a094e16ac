//! Loads that change, and how the pools follow; every run is a table.

use super::super::ScalingSpec;
use super::super::per_role::PerRole;
use super::super::spec::Bounds;
use super::simulator::{Load, Simulator};
use super::{mk_pools, mk_spec, seconds};
use pd_crds::PoolRole;

const CHAT: Load = Load {
    rate: 2.0,
    input: 2000.0,
    output: 200.0,
};

const LONG_PROMPTS: Load = Load {
    rate: 6.0,
    input: 8000.0,
    output: 50.0,
};
const LONG_ANSWERS: Load = Load {
    rate: 5.0,
    input: 500.0,
    output: 1200.0,
};

fn mk_run_spec() -> ScalingSpec {
    ScalingSpec {
        bounds: PerRole::of(|_| Bounds { min: 1, max: 12 }),
        tpot_s: Some(0.04),
        ..mk_spec()
    }
}

fn assert_served(run: &Simulator) {
    let in_flight = u32::try_from(run.in_flight()).unwrap();
    assert_eq!(run.answered + in_flight, run.arrived, "a request was lost");
}

fn assert_goals(run: &Simulator) {
    assert!(run.ttft_s <= 2.0, "{}", run.table);
    assert!(run.itl_s <= 0.04, "{}", run.table);
}

#[test]
fn pools_follow_a_load_up_and_down() {
    let mut run = Simulator::new(mk_run_spec(), 100);
    run.run(CHAT, 300);
    assert_eq!(run.targets, mk_pools(1, 1), "{}", run.table);
    run.run(Load { rate: 12.0, ..CHAT }, 600);
    assert_goals(&run);
    let up = run.targets;
    let enough = (3..=5).contains(&up.prefill) && (3..=6).contains(&up.decode);
    assert!(enough, "{}", run.table);
    run.run(CHAT, 1500);
    assert_eq!(run.targets, mk_pools(1, 1), "{}", run.table);
    assert_goals(&run);
    assert_served(&run);
    insta::assert_snapshot!(run.table);
}

#[test]
fn a_constant_load_makes_no_change_once_it_is_met() {
    let mut run = Simulator::new(mk_run_spec(), 100);
    run.run(Load { rate: 12.0, ..CHAT }, 1200);
    let (settled, changes) = (run.targets, run.changes);
    run.run(Load { rate: 12.0, ..CHAT }, 2400);
    assert_eq!(
        (run.targets, run.changes),
        (settled, changes),
        "{}",
        run.table
    );
}

#[test]
fn a_goal_that_no_replica_meets_is_not_chased() {
    let spec = ScalingSpec {
        tpot_s: Some(0.005),
        ..mk_run_spec()
    };
    let mut run = Simulator::new(spec, 100);
    run.run(CHAT, 900);
    assert!(run.targets.decode <= 4, "{}", run.table);
    let changes = run.changes;
    run.run(CHAT, 900);
    assert_eq!(run.changes, changes, "{}", run.table);
}

#[test]
fn a_slow_gpu_is_replaced() {
    let mut run = Simulator::new(mk_run_spec(), 100);
    run.run(Load { rate: 6.0, ..CHAT }, 1200);
    let settled = run.targets;
    assert_eq!(settled.prefill, 2, "{}", run.table);
    run.slow_one(PoolRole::Prefill);
    run.run(Load { rate: 6.0, ..CHAT }, 1200);
    assert_eq!((run.targets, run.slowed()), (settled, 0), "{}", run.table);
    assert_goals(&run);
    assert_served(&run);
    insta::assert_snapshot!(run.table);
}

#[test]
fn long_prompts_grow_prefill_and_long_answers_decode() {
    let long_prompts = Load {
        rate: 4.0,
        input: 8000.0,
        output: 50.0,
    };
    let long_answers = Load {
        rate: 4.0,
        input: 500.0,
        output: 1200.0,
    };
    let mut run = Simulator::new(mk_run_spec(), 100);
    run.run(CHAT, 120);
    run.run(long_prompts, 900);
    assert_goals(&run);
    let by_prompts = run.targets;
    run.run(long_answers, 1200);
    assert_goals(&run);
    let by_answers = run.targets;
    let table = &run.table;
    assert!(by_prompts.prefill > by_prompts.decode + 1, "{table}");
    assert!(by_answers.decode > by_answers.prefill + 1, "{table}");
    assert_served(&run);
    insta::assert_snapshot!(run.table);
}

#[test]
fn at_the_cap_gpus_change_pools_and_are_never_exceeded() {
    let spec = ScalingSpec {
        max_gpus: Some(8),
        ..mk_run_spec()
    };
    let mut run = Simulator::new(spec, 8);
    run.run(LONG_ANSWERS, 600);
    assert!(run.targets.decode >= 5, "{}", run.table);
    run.run(LONG_PROMPTS, 600);
    assert!(run.targets.prefill >= 5, "{}", run.table);
    assert_eq!(run.most_gpus, 8, "{}", run.table);
    run.run(CHAT, 900);
    assert_served(&run);
    insta::assert_snapshot!(run.table);
}

#[test]
fn what_nodes_have_no_room_for_is_given_up_and_cancelled() {
    let spec = ScalingSpec {
        down_window: seconds(120),
        ..mk_run_spec()
    };
    let mut run = Simulator::new(spec, 4);
    run.run(Load { rate: 12.0, ..CHAT }, 240);
    let placed: usize = [PoolRole::Prefill, PoolRole::Decode]
        .map(|role| run.serving(role))
        .iter()
        .sum();
    assert_eq!(placed, 4, "{}", run.table);
    let asked = run.targets.prefill + run.targets.decode;
    assert_eq!(asked, 4, "{}", run.table);
    run.run(CHAT, 900);
    assert_eq!(run.targets, mk_pools(1, 1), "{}", run.table);
    assert_served(&run);
    insta::assert_snapshot!(run.table);
}

/// Full nodes are a budget that is written nowhere.
#[test]
fn what_nodes_turn_out_to_have_is_shared_out() {
    let spec = ScalingSpec {
        shares_nodes: true,
        ..mk_run_spec()
    };
    let prefills = Load {
        rate: 8.0,
        ..LONG_PROMPTS
    };
    let mut run = Simulator::new(spec, 8);
    run.run(prefills, 600);
    assert!(run.targets.prefill >= 6, "{}", run.table);
    run.run(LONG_ANSWERS, 900);
    assert!(run.targets.decode >= 5, "{}", run.table);
    run.run(CHAT, 900);
    assert_served(&run);
    insta::assert_snapshot!(run.table);
}
