//! When a shortage of slots is said.

use super::super::per_role::PerRole;
use super::super::sample::{Gauges, StateSlots};
use super::super::slot_shortage::SlotShortage;
use super::{World, mk_pools, mk_world, seconds};
use pd_crds::PoolRole;

fn mk_gauges(used: f64, queue_tokens: f64, used_tokens: f64) -> Gauges {
    Gauges {
        queue_tokens,
        used_tokens,
        capacity_tokens: 1000.0,
        slots: Some(StateSlots { used, total: 8.0 }),
        ..Gauges::default()
    }
}

fn mk_hybrid(decode: Gauges) -> World {
    let mut world = mk_world(1, 1);
    world.gauges = PerRole {
        prefill: mk_gauges(0.0, 0.0, 0.0),
        decode,
    };
    world
}

#[test]
fn a_worker_lacks_slots_where_requests_wait_and_pages_are_free() {
    for (gauges, lacks) in [
        (mk_gauges(8.0, 50.0, 400.0), true),
        (mk_gauges(7.0, 50.0, 400.0), false),
        (mk_gauges(8.0, 0.0, 400.0), false),
        (mk_gauges(8.0, 50.0, 990.0), false),
        (
            Gauges {
                slots: None,
                ..mk_gauges(8.0, 50.0, 400.0)
            },
            false,
        ),
    ] {
        assert_eq!(gauges.lacks_slots(), lacks, "{gauges:?}");
    }
}

#[test]
fn a_shortage_is_said_after_a_minute_and_until_it_is_over_for_one() {
    let (lacking, enough) = (mk_gauges(8.0, 50.0, 400.0), mk_gauges(2.0, 0.0, 400.0));
    let mut shortage = SlotShortage::default();
    assert_eq!(shortage.lacks(), None);
    for (at, gauges, said) in [
        (0, lacking, false),
        (50, lacking, false),
        // Once in between there were some.
        (55, enough, false),
        (60, lacking, false),
        (115, lacking, false),
        (120, lacking, true),
        (125, enough, true),
        (180, enough, true),
        (185, enough, false),
    ] {
        let observations = mk_hybrid(gauges).observe(mk_pools(1, 1), seconds(at));
        shortage.observe(&observations, seconds(at));
        assert_eq!(shortage.lacks(), Some(said), "at {at} s");
    }
}

#[test]
fn what_a_status_says_is_gone_on_from_and_a_model_without_slots_lacks_none() {
    let mut shortage = SlotShortage::of(Some(true));
    let mut silent = mk_hybrid(mk_gauges(2.0, 0.0, 400.0));
    silent.states[PoolRole::Prefill].clear();
    silent.states[PoolRole::Decode].clear();
    shortage.observe(&silent.observe(mk_pools(1, 1), seconds(5)), seconds(5));
    assert_eq!(shortage.lacks(), Some(true));
    let dense = mk_world(1, 1).observe(mk_pools(1, 1), seconds(10));
    shortage.observe(&dense, seconds(10));
    assert_eq!(shortage.lacks(), None);
}
