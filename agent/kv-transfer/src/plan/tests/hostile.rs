//! Layouts that a peer makes up: refused, or planned without leaving either side's memory.

use super::*;
use crate::items;
use pd_protocol::compat::{KvMeaning, check_pair};
use pd_protocol::layout::{StateLayout, StateTensor, StateType};

fn mk_own() -> KvLayout {
    let tensor = |name: &str, dim, layer_bytes| StateTensor {
        name: name.to_owned(),
        total_dim: 8,
        dim_start: 8 - dim,
        dim,
        first_layer: 0,
        layers: 3,
        layer_bytes,
    };
    KvLayout {
        states: vec![StateLayout {
            name: "recurrent".to_owned(),
            state_type: StateType::Swa,
            slots: 5,
            tensors: vec![tensor("conv", 8, 3), tensor("ssm", 4, 5)],
        }],
        ..mk_layout(2, 2..6, 8, &[0..2, 2..5])
    }
}

/// A number of a descriptor, as a stranger would choose it.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0u32..10,
        1 => prop::sample::select(vec![u32::MAX, u32::MAX - 1, 1 << 31, 65_536, 65_537]),
    ]
}

/// One place of a descriptor, and what the stranger writes there.
fn changes() -> impl Strategy<Value = Vec<(usize, u32)>> {
    // Those from 16 on must be equal on both sides.
    let place = prop_oneof![20 => 0usize..16, 1 => 16usize..22];
    prop::collection::vec((place, number()), 0..4)
}

/// Pages, items or a row: most of them there.
fn named(numbers: &[u32], there: u32) -> Vec<u32> {
    let numbers = numbers.iter();
    let each = numbers.map(|&number| {
        if number < 10 {
            number % there.max(1)
        } else {
            number
        }
    });
    each.collect()
}

fn change(layout: &mut KvLayout, (place, to): (usize, u32)) {
    let KvLayout { groups, states, .. } = layout;
    let (group, state) = (&mut groups[0], &mut states[0]);
    match place {
        0 => layout.pages = to,
        1 => layout.metadata_rows = to,
        2 => group.head_start = to,
        3 => group.heads = to,
        4 => group.cuts[0].first_layer = to,
        5 => group.cuts[0].layers = to,
        6 => group.cuts[1].first_layer = to,
        7 => group.cuts[1].layers = to,
        8 => group.cuts.truncate(to as usize),
        9 => group.cuts = vec![group.cuts[0]; to.min(200) as usize],
        10 => state.slots = to,
        11 => state.tensors[0].dim_start = to,
        12 => state.tensors[0].dim = to,
        13 => state.tensors[0].first_layer = to,
        14 => state.tensors[0].layers = to,
        15 => state.tensors = vec![state.tensors[0].clone(); to.min(200) as usize],
        16 => state.tensors[0].layer_bytes = u64::from(to) << 32 | 1,
        17 => layout.page_size = to,
        18 => group.head_dim = to,
        19 => group.total_heads = to,
        20 => state.tensors[0].total_dim = to,
        _ => group.tensors = to,
    }
}

/// A changed descriptor; a list that a change emptied is left so.
fn mk_hostile(own: &KvLayout, changes: &[(usize, u32)]) -> KvLayout {
    let mut layout = own.clone();
    for &(place, to) in changes {
        let is_whole = layout.groups[0].cuts.len() > 1 && !layout.states[0].tensors.is_empty();
        if is_whole {
            change(&mut layout, (place, to));
        }
    }
    layout
}

/// Either side's bytes lie within its own regions.
fn check_inside(ranges: &[CopyRange], src: &KvLayout, dst: &KvLayout) {
    let (src, dst) = (src.region_lens(), dst.region_lens());
    for range in ranges {
        let src_end = range.src_offset.checked_add(range.len).unwrap();
        let dst_end = range.dst_offset.checked_add(range.len).unwrap();
        assert!(src_end <= src[range.src_region], "{range:?} leaves {src:?}");
        assert!(dst_end <= dst[range.dst_region], "{range:?} leaves {dst:?}");
    }
}

proptest! {
    // A good fifth of them gets as far as a plan.
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_strangers_layout_is_refused_or_stays_in_bounds(
        changes in changes(),
        (own_tp, own_rank, tp, their_rank) in (1u32..5, 0u32..6, number(), number()),
        (pages, items, rows) in (
            prop::collection::vec(number(), 0..4),
            prop::collection::vec(number(), 0..4),
            number(),
        ),
    ) {
        let own = mk_own();
        prop_assert_eq!(own.validate(), Ok(()));
        let hostile = mk_hostile(&own, &changes);
        let meaning = |layout| KvMeaning { kv_compat: "", layout };
        if hostile.validate().is_err() || check_pair(meaning(&own), meaning(&hostile)).is_err() {
            return Ok(());
        }
        let pages = named(&pages, hostile.pages);
        let items = named(&items, hostile.states[0].slots);
        let rows = named(&[rows], hostile.metadata_rows)[0];
        let checked = items::check_pages(&hostile, &pages)
            .and_then(|()| items::check_row(&hostile, rows))
            .and_then(|()| items::check_states(&hostile, std::slice::from_ref(&items), pages.len()));
        if checked.is_err() {
            return Ok(());
        }
        let parallel = |tp_size| ParallelLayout { tp_size, ..ParallelLayout::SINGLE };
        let (own_parallel, parallel) = (parallel(own_tp), parallel(tp));
        let rank = |tp_rank| RankId { tp_rank, ..RankId::default() };
        // A stranger's pool may claim any ranks.
        let (own_rank, rank) = (rank(own_rank % own_tp), rank(their_rank));
        let here = End { layout: &own, parallel: &own_parallel, rank: own_rank };
        let there = End { layout: &hostile, parallel: &parallel, rank };
        let (own_pages, own_items) = (vec![0; pages.len()], vec![vec![4; items.len()]]);
        let items = vec![items];
        let tail = |state_indices, metadata_buffer_index| Tail { state_indices, metadata_buffer_index };
        for is_prefill in [true, false] {
            let (src, dst) = if is_prefill { (here, there) } else { (there, here) };
            let plan = TransferPlan::new(src, dst);
            let own_tail = tail(&own_items, 0);
            let their_tail = tail(&items, rows);
            let (pages, tails) = if is_prefill {
                ((&own_pages, &pages), (own_tail, their_tail))
            } else {
                ((&pages, &own_pages), (their_tail, own_tail))
            };
            let mut ranges = plan.page_ranges(pages.0, pages.1);
            ranges.extend(plan.tail_ranges(tails.0, tails.1));
            check_inside(&ranges, src.layout, dst.layout);
            let spans = plan.dst_page_spans(pages.1).into_iter().chain(plan.dst_tail_spans(tails.1));
            let lens = dst.layout.region_lens();
            for span in spans {
                prop_assert!(span.end() <= lens[span.region]);
            }
            // Decode says so where its sources do not bring all.
            let _ = check_whole(dst.layout, &[&plan]);
        }
    }
}

#[test]
fn layers_that_are_in_two_places_are_refused() {
    let mut layout = mk_own();
    layout.groups[0].cuts[1].first_layer = 1;
    assert_eq!(
        layout.validate().unwrap_err().to_string(),
        "full has layer 1 twice"
    );
    let mut layout = mk_own();
    let again = layout.states[0].tensors[0].clone();
    layout.states[0].tensors.push(again);
    assert_eq!(
        layout.validate().unwrap_err().to_string(),
        "conv has layer 0 twice"
    );
}
