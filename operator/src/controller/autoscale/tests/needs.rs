//! What demand asks for, by the formulas.

use super::super::decision::Reason;
use super::super::demand_model::{GROW, SHRINK, needs};
use super::super::need::Need;
use super::super::per_role::PerRole;
use super::super::sample::{Gauges, StateSlots};
use super::super::{History, ScalingSpec};
use super::{World, mk_pools, mk_spec, mk_world, seconds};

const LONG: u64 = 120;

fn needs_of(world: &World, spec: &ScalingSpec) -> PerRole<Option<Need>> {
    let pools = mk_pools(1, 1);
    let (_, history) = world.decide_on(pools, spec, 0..=LONG, History::default());
    let observations = world.observe(pools, seconds(LONG));
    needs(&observations, &history, spec, GROW, seconds(LONG))
}

fn assert_need(need: Option<Need>, replicas: f64, reason: Reason) {
    let need = need.expect("enough is known");
    assert_eq!(need.reason, reason);
    let off = (need.replicas - replicas).abs() / replicas;
    assert!(off < 0.02, "{need:?}, not {replicas}");
}

#[test]
fn ten_requests_a_second_hold_230_625_tokens() {
    let world = World {
        speed: 3e6,
        ..mk_world(1, 1)
    };
    let found = needs_of(&world, &mk_spec());
    // 10 req/s × 150 tokens × 50 ms = 75 requests of 3000 + 75 tokens.
    assert_need(found.decode, 230_625.0 / 85_000.0, Reason::KvOccupancy);
}

#[test]
fn prefill_is_sized_by_tokens_that_the_cache_lacks() {
    let mut world = mk_world(1, 1);
    let found = needs_of(&world, &mk_spec());
    assert_need(found.prefill, 1.0 / 0.85, Reason::PrefillTokens);
    world.cached = 0.5;
    let found = needs_of(&world, &mk_spec());
    assert_need(found.prefill, 0.5 / 0.85, Reason::PrefillTokens);
}

#[test]
fn a_queue_is_to_be_gone_within_the_goal() {
    let mut world = mk_world(1, 1);
    world.gauges.prefill.queue_tokens = 57_000.0;
    let found = needs_of(&world, &mk_spec());
    // 2 s less 0.1 s for the prompt itself: 30 000 tokens/s come, 30 000 tokens/s wait.
    assert_need(found.prefill, 2.0, Reason::PrefillQueue);
    world.gauges.prefill.queue_tokens = 0.0;
    world.router_queue = Some(19.0);
    let found = needs_of(&world, &mk_spec());
    assert_need(found.prefill, 2.0, Reason::PrefillQueue);
}

#[test]
fn prompts_that_wait_for_decode_grow_no_prefill() {
    let mut world = mk_world(1, 1);
    world.rate = 1.0;
    world.gauges.decode = Gauges {
        used_tokens: 100_000.0,
        queue_tokens: 70_000.0,
        ..world.gauges.decode
    };
    let found = needs_of(&world, &mk_spec());
    assert_need(found.prefill, 0.1 / 0.85, Reason::PrefillTokens);
    // Answers take 7.5 s and make room for the next within the 2 s that a token may take.
    let at_once = 7.5 / 9.5;
    let held = 100_000.0 + 70_000.0 * at_once;
    assert_need(found.decode, held / 85_000.0, Reason::KvOccupancy);
}

#[test]
fn memory_reserved_for_late_prefill_grows_no_decode() {
    let mut world = mk_world(1, 1);
    world.rate = 0.1;
    world.gauges.decode = Gauges {
        used_tokens: 100_000.0,
        reserved_tokens: 100_000.0,
        queue_tokens: 500_000.0,
        ..world.gauges.decode
    };
    let found = needs_of(&world, &mk_spec()).decode.unwrap();
    assert!(found.whole() <= 1, "{found:?}");
}

#[test]
fn decode_is_sized_by_the_fuller_of_its_kv_pool_and_its_slots() {
    // At 10 req/s × 150 tokens × 50 ms 75 requests of 3075 tokens run; at 1 req/s a tenth of them.
    let tokens = 75.0 * 3075.0 / 85_000.0;
    // Ten requests wait, and answers of 7.5 s make room for the next within 2 s.
    let waiting = 10.0 * 7.5 / 9.5;
    let of = |used, total| Some(StateSlots { used, total });
    for (rate, slots, queue_tokens, reserved, replicas, reason) in [
        (10.0, None, 0.0, 0.0, tokens, Reason::KvOccupancy),
        (10.0, of(75.0, 100.0), 0.0, 0.0, tokens, Reason::KvOccupancy),
        (
            10.0,
            of(16.0, 16.0),
            0.0,
            0.0,
            75.0 / (0.85 * 16.0),
            Reason::StateSlots,
        ),
        (
            1.0,
            of(16.0, 16.0),
            30_000.0,
            0.0,
            (16.0 + waiting) / (0.85 * 16.0),
            Reason::StateSlots,
        ),
        // All of them are reserved for KV that prefill is late with.
        (
            1.0,
            of(16.0, 16.0),
            30_000.0,
            1.0,
            7.5 / (0.85 * 16.0),
            Reason::StateSlots,
        ),
    ] {
        let mut world = World {
            rate,
            speed: 3e6,
            ..mk_world(1, 1)
        };
        world.gauges.decode = Gauges {
            used_tokens: 20_000.0,
            reserved_tokens: 20_000.0 * reserved,
            queue_tokens,
            slots,
            ..world.gauges.decode
        };
        assert_need(needs_of(&world, &mk_spec()).decode, replicas, reason);
    }
}

#[test]
fn links_bound_both_pools() {
    let world = World {
        kv_bytes: 100_000.0,
        link: 1e9,
        speed: 3e6,
        output: 1.0,
        ..mk_world(1, 1)
    };
    let found = needs_of(&world, &mk_spec());
    // 3 GB/s over links of 1 GB/s, seven tenths full.
    assert_need(found.prefill, 3.0 / 0.7, Reason::KvLink);
    assert_need(found.decode, 3.0 / 0.7, Reason::KvLink);
}

#[test]
fn silence_needs_nothing_and_ignorance_is_not_silence() {
    let mut world = World {
        rate: 0.0,
        ..mk_world(1, 1)
    };
    let found = needs_of(&world, &mk_spec());
    assert_eq!(found.prefill.map(|need| need.replicas), Some(0.0));
    assert_eq!(found.decode.map(|need| need.replicas), Some(0.0));
    world.gauges.prefill.queue_tokens = 100.0;
    assert_eq!(needs_of(&world, &mk_spec()).prefill, None);
}

#[test]
fn shrinking_wants_more_room_than_growing() {
    let world = mk_world(2, 3);
    let pools = mk_pools(2, 3);
    let spec = mk_spec();
    let (_, history) = world.decide_on(pools, &spec, 0..=LONG, History::default());
    let observations = world.observe(pools, seconds(LONG));
    let of = |headroom| needs(&observations, &history, &spec, headroom, seconds(LONG));
    let (grow, shrink) = (of(GROW), of(SHRINK));
    assert!(shrink.prefill.unwrap().replicas > grow.prefill.unwrap().replicas * 1.2);
    assert!(shrink.decode.unwrap().replicas > grow.decode.unwrap().replicas * 1.2);
}
