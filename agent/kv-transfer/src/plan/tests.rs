//! The plan against an oracle that addresses every byte by what it means.

mod hostile;

use super::*;
use pd_protocol::layout::{KvCut, KvDtype, KvGroup, PAGE_ORDER};
use pd_protocol::metadata::MetadataLayout;
use proptest::prelude::*;
use std::ops::Range;

const PAGES: u32 = 6;

/// A rank of a model with `total_heads` heads; one byte per element, so offsets are elements.
fn mk_layout(page_size: u32, heads: Range<u32>, total_heads: u32, cuts: &[Range<u32>]) -> KvLayout {
    let cut = |layers: &Range<u32>| KvCut {
        first_layer: layers.start,
        layers: layers.end - layers.start,
    };
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size,
        pages: PAGES,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Fp8E4m3,
            head_dim: 3,
            tensors: 2,
            total_heads,
            head_start: heads.start,
            heads: heads.end - heads.start,
            cuts: cuts.iter().map(cut).collect(),
        }],
        states: Vec::new(),
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Float32,
        },
        metadata_rows: 1,
    }
}

/// The only rank of its pool, with any shard.
fn mk_end(layout: &KvLayout) -> End<'_> {
    End {
        layout,
        parallel: &ParallelLayout::SINGLE,
        rank: RankId::default(),
    }
}

/// Memory of a rank, every byte given by `value(page, head, layer, rest)`; `None` elsewhere.
fn fill<T: Clone>(layout: &KvLayout, value: impl Fn(u32, u32, u32, u64) -> T) -> Vec<Vec<T>> {
    let group = &layout.groups[0];
    let regions = group.cuts.iter().map(|cut| {
        let mut bytes = Vec::new();
        for page in 0..layout.pages {
            for head in group.head_start..group.head_start + group.heads {
                for layer in cut.first_layer..cut.first_layer + cut.layers {
                    let rest = 0..group.layer_bytes(layout.page_size);
                    bytes.extend(rest.map(|rest| value(page, head, layer, rest)));
                }
            }
        }
        bytes
    });
    regions.collect()
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn split(at: &[u32], end: u32) -> Vec<Range<u32>> {
    let mut bounds: Vec<u32> = at.iter().map(|&a| a % end).filter(|&a| a > 0).collect();
    bounds.extend([0, end]);
    bounds.sort_unstable();
    bounds.dedup();
    bounds.windows(2).map(|w| w[0]..w[1]).collect()
}

proptest! {
    #[test]
    fn every_shared_byte_arrives_and_no_other_changes(
        page_size in 1u32..4,
        (src_rank, src_tp, dst_rank, dst_tp) in (0u32..4, 0u32..3, 0u32..4, 0u32..3),
        layers in 1u32..6,
        src_cuts in prop::collection::vec(0u32..6, 0..3),
        dst_cuts in prop::collection::vec(0u32..6, 0..3),
        pages in prop::sample::subsequence((0..PAGES).collect::<Vec<_>>(), 0..=PAGES as usize)
            .prop_shuffle(),
        dst_pages in Just((0..PAGES).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let share = |rank: u32, tp: u32| {
            let each = 4 >> tp;
            let start = (rank % (1 << tp)) * each;
            start..start + each
        };
        let src = mk_layout(page_size, share(src_rank, src_tp), 4, &split(&src_cuts, layers));
        let dst = mk_layout(page_size, share(dst_rank, dst_tp), 4, &split(&dst_cuts, layers));
        let dst_pages = &dst_pages[..pages.len()];
        let plan = TransferPlan::new(mk_end(&src), mk_end(&dst));

        let from = fill(&src, |page, head, layer, rest| Some((page, head, layer, rest)));
        let mut to = fill(&dst, |_, _, _, _| None);
        for r in plan.page_ranges(&pages, dst_pages) {
            let (at, len) = (index(r.src_offset), index(r.len));
            let bytes = from[r.src_region][at..at + len].to_vec();
            let place = &mut to[r.dst_region][index(r.dst_offset)..][..len];
            prop_assert!(place.iter().all(Option::is_none), "written twice");
            place.clone_from_slice(&bytes);
        }

        let expected = fill(&dst, |page, head, layer, rest| {
            let at = dst_pages.iter().position(|&d| d == page)?;
            let held = share(src_rank, src_tp).contains(&head);
            held.then_some((pages[at], head, layer, rest))
        });
        prop_assert_eq!(to, expected);
    }

    #[test]
    fn spans_are_the_two_sides_of_the_ranges(
        pages in Just((0..PAGES).collect::<Vec<_>>()).prop_shuffle(),
        dst_pages in Just((0..PAGES).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let src = mk_layout(2, 0..4, 4, &[0..2, 2..5]);
        let dst = mk_layout(2, 2..4, 4, &split(&[], 5));
        let plan = TransferPlan::new(mk_end(&src), mk_end(&dst));
        let bytes = |spans: Vec<Span>| -> Vec<(usize, u64)> {
            let each = |s: Span| (s.offset..s.end()).map(move |o| (s.region, o));
            spans.into_iter().flat_map(each).collect()
        };
        let from = bytes(plan.src_page_spans(&pages));
        let to = bytes(plan.dst_page_spans(&dst_pages));
        prop_assert_eq!(from.len() as u64, plan.page_bytes() * u64::from(PAGES));
        let ranges = plan.page_ranges(&pages, &dst_pages);
        let pairs: Vec<_> = ranges.into_iter().flat_map(|r| {
            (0..r.len).map(move |i| {
                ((r.src_region, r.src_offset + i), (r.dst_region, r.dst_offset + i))
            })
        }).collect();
        prop_assert_eq!(from.into_iter().zip(to).collect::<Vec<_>>(), pairs);
    }
}

#[test]
fn a_run_of_pages_is_one_range_per_cut() {
    let layout = mk_layout(2, 0..4, 4, &[0..2, 2..5]);
    let plan = TransferPlan::new(mk_end(&layout), mk_end(&layout));
    assert_eq!(plan.page_ranges(&[2, 3, 4], &[1, 2, 3]).len(), 2);
    assert_eq!(plan.page_ranges(&[2, 4], &[1, 2]).len(), 4);
}

#[test]
fn the_tail_is_the_row_of_each_side() {
    let layout = mk_layout(2, 0..4, 4, &[0..2, 2..5]);
    let plan = TransferPlan::new(mk_end(&layout), mk_end(&layout));
    let tail = |metadata_buffer_index| Tail {
        state_indices: &[],
        metadata_buffer_index,
    };
    let row = layout.metadata.row_bytes() as u64;
    let expected = CopyRange {
        src_region: 2,
        src_offset: 0,
        dst_region: 2,
        dst_offset: 3 * row,
        len: row,
    };
    assert_eq!(plan.tail_ranges(tail(0), tail(3)), [expected]);
}
