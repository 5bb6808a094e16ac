//! The rank table of the reference, row by row; whole pools against an oracle that knows every byte;
//! and how many writes a long request takes.

use super::*;
use crate::plan::{CopyRange, End, Tail, TransferPlan, check_whole};
use pd_protocol::layout::{
    KvCut, KvDtype, KvGroup, PAGE_ORDER, StateLayout, StateTensor, StateType,
};
use pd_protocol::metadata::MetadataLayout;
use proptest::prelude::*;

/// What the bytes of a model's KV are.
#[derive(Clone, Debug)]
struct Model {
    groups: Vec<Heads>,
    states: Vec<Vec<Dim>>,
    layers: u32,
}

/// A tensor of a state: its dim, and whether tensor parallelism slices it.
#[derive(Clone, Copy, Debug)]
struct Dim {
    total: u32,
    is_sliced: bool,
}

/// Heads of a group, and tensors per layer: 1 is a latent.
#[derive(Clone, Copy, Debug)]
struct Heads {
    total: u32,
    tensors: u32,
}

/// The heads, or places of a dim, that a rank of `size` has.
fn held(total: u32, is_sliced: bool, rank: u32, size: u32) -> Range<u32> {
    if !is_sliced {
        return 0..total;
    }
    let first = rank * total / size;
    first..first + (total / size).max(1)
}

/// A rank's tensors of a state; those of a cut differ by their layers.
fn mk_state(
    (nr, dims): (usize, &Vec<Dim>),
    (rank, size): (u32, u32),
    cuts: &[Range<u32>],
) -> StateLayout {
    let tensor = |(i, dim): (usize, &Dim), layers: &Range<u32>| {
        let held = held(dim.total, dim.is_sliced, rank, size);
        StateTensor {
            name: format!("tensor{i}"),
            total_dim: dim.total,
            dim_start: held.start,
            dim: held.end - held.start,
            first_layer: layers.start,
            layers: layers.end - layers.start,
            layer_bytes: 1 + i as u64,
        }
    };
    let of_cut = |cut| dims.iter().enumerate().map(move |dim| tensor(dim, cut));
    StateLayout {
        name: format!("state{nr}"),
        state_type: StateType::Swa,
        slots: 4,
        tensors: cuts.iter().flat_map(of_cut).collect(),
    }
}

/// A rank's memory; `cuts` are of its own layers.
fn mk_layout(model: &Model, rank: u32, size: u32, pages: u32, cuts: &[Range<u32>]) -> KvLayout {
    let cut = |layers: &Range<u32>| KvCut {
        first_layer: layers.start,
        layers: layers.end - layers.start,
    };
    let group = |(nr, &group): (usize, &Heads)| {
        let heads = held(group.total, group.tensors > 1, rank, size);
        KvGroup {
            name: format!("group{nr}"),
            dtype: KvDtype::Fp8E4m3,
            head_dim: 1,
            tensors: group.tensors,
            total_heads: group.total,
            head_start: heads.start,
            heads: heads.end - heads.start,
            cuts: cuts.iter().map(cut).collect(),
        }
    };
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 1,
        pages,
        groups: model.groups.iter().enumerate().map(group).collect(),
        states: model
            .states
            .iter()
            .enumerate()
            .map(|state| mk_state(state, (rank, size), cuts))
            .collect(),
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Float32,
        },
        metadata_rows: 2,
    }
}

fn mk_parallel(tp_size: u32, pp_size: u32) -> ParallelLayout {
    ParallelLayout {
        tp_size,
        pp_size,
        ..ParallelLayout::SINGLE
    }
}

/// A model of one group.
fn mk_model(total: u32, tensors: u32) -> Model {
    Model {
        groups: vec![Heads { total, tensors }],
        states: Vec::new(),
        layers: 1,
    }
}

/// `(tp_rank, pp_rank, is_dummy)` of each source, and the count of the first.
type Mapped = (Vec<(u32, u32, bool)>, u32);

fn map(
    (p_tp, p_pp): (u32, u32),
    (d_tp, d_pp): (u32, u32),
    tp_rank: u32,
    model: &Model,
) -> Result<Mapped, MappingError> {
    let own = RankId {
        tp_rank,
        ..RankId::default()
    };
    let (p, d) = (mk_parallel(p_tp, p_pp), mk_parallel(d_tp, d_pp));
    let cuts = cut(0..model.layers, 1);
    let dst = mk_layout(model, tp_rank, d_tp, 1, &cuts);
    let sources = resolve_rank_mapping(&p, &d, own, &dst)?;
    let mapped = sources.iter().map(|source| {
        let src = mk_layout(model, source.rank.tp_rank, p_tp, 1, &cuts);
        let plan = TransferPlan::new(mk_end(&src, &p, source.rank), mk_end(&dst, &d, own));
        (source.rank.tp_rank, source.rank.pp_rank, plan.is_empty(1))
    });
    Ok((mapped.collect(), sources[0].required_dst_info_num))
}

fn mk_end<'a>(layout: &'a KvLayout, parallel: &'a ParallelLayout, rank: RankId) -> End<'a> {
    End {
        layout,
        parallel,
        rank,
    }
}

#[test]
fn equal_sizes_pair_rank_by_rank() {
    let expected = Ok((vec![(2, 0, false)], 1));
    assert_eq!(map((4, 1), (4, 1), 2, &mk_model(4, 2)), expected);
    assert_eq!(
        map((4, 1), (4, 1), 2, &mk_model(2, 2)),
        expected,
        "few heads"
    );
}

#[test]
fn a_wider_decode_shares_a_prefill_rank() {
    let expected = Ok((vec![(1, 0, false)], 2));
    assert_eq!(map((2, 1), (4, 1), 3, &mk_model(4, 2)), expected);
}

#[test]
fn a_narrower_decode_gathers_from_several() {
    let sources = vec![(2, 0, false), (3, 0, false)];
    assert_eq!(map((4, 1), (2, 1), 1, &mk_model(4, 2)), Ok((sources, 1)));
}

#[test]
fn a_latent_or_a_head_comes_from_one_rank_and_the_others_count() {
    let sources = vec![(2, 0, false), (3, 0, true)];
    let expected = Ok((sources, 1));
    assert_eq!(map((4, 1), (2, 1), 1, &mk_model(1, 1)), expected);
    assert_eq!(map((4, 1), (2, 1), 1, &mk_model(2, 2)), expected);
}

#[test]
fn sizes_that_do_not_divide_each_other_meet_where_their_heads_do() {
    let model = mk_model(6, 2);
    assert_eq!(
        map((3, 1), (2, 1), 0, &model),
        Ok((vec![(0, 0, false), (1, 0, false)], 1))
    );
    assert_eq!(
        map((2, 1), (3, 1), 1, &model).map(|(sources, _)| sources.len()),
        Ok(2)
    );
}

#[test]
fn an_unstaged_decode_gathers_every_stage() {
    let sources = vec![(0, 0, false), (0, 1, false)];
    assert_eq!(map((1, 2), (1, 1), 0, &mk_model(1, 2)), Ok((sources, 1)));
}

#[test]
fn sizes_that_do_not_fit_are_refused_with_both() {
    let refused = map((3, 1), (2, 1), 0, &mk_model(4, 2)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "tensor-parallel size 3 of prefill does not fit the 4 KV heads of group group0: one must \
         divide the other"
    );
    assert!(map((1, 4), (1, 2), 0, &mk_model(4, 2)).is_err());
    let refused = map((1 << 20, 1), (1, 1), 0, &mk_model(1, 1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "prefill says that it has 1048576 ranks; a pool has 1 to 4096"
    );
}

/// What a byte is: item, what of (groups, then states, then rows), head, layer, rest.
type Meaning = (u32, usize, u32, u32, u64);

/// A rank's regions, each byte as `value` says.
fn fill(
    layout: &KvLayout,
    value: impl Fn(Meaning) -> Option<Meaning>,
) -> Vec<Vec<Option<Meaning>>> {
    let mut regions = Vec::new();
    for (nr, group) in layout.groups.iter().enumerate() {
        for cut in &group.cuts {
            let mut bytes = Vec::new();
            for page in 0..layout.pages {
                for head in group.head_start..group.head_start + group.heads {
                    for layer in cut.first_layer..cut.first_layer + cut.layers {
                        let rest = 0..group.layer_bytes(layout.page_size);
                        bytes.extend(rest.map(|rest| value((page, nr, head, layer, rest))));
                    }
                }
            }
            regions.push(bytes);
        }
    }
    for (nr, state) in layout.states.iter().enumerate() {
        let mut bytes = Vec::new();
        for item in 0..state.slots {
            for tensor in &state.tensors {
                let what = 100 + nr * 10 + usize::try_from(tensor.layer_bytes).unwrap();
                for head in tensor.dim_start..tensor.dim_start + tensor.dim {
                    for layer in tensor.first_layer..tensor.first_layer + tensor.layers {
                        let rest = 0..tensor.layer_bytes;
                        bytes.extend(rest.map(|rest| value((item, what, head, layer, rest))));
                    }
                }
            }
        }
        regions.push(bytes);
    }
    let row = |row| (0..layout.metadata.row_bytes() as u64).map(move |at| (row, ROW, 0, 0, at));
    let rows = (0..layout.metadata_rows).flat_map(row);
    regions.push(rows.map(value).collect());
    regions
}

const ROW: usize = 999;

/// Layers of a stage, cut in `cuts` parts at most.
fn cut(layers: Range<u32>, cuts: u32) -> Vec<Range<u32>> {
    let each = (layers.end - layers.start).div_ceil(cuts).max(1);
    let starts = layers.clone().step_by(each as usize);
    starts
        .map(|start| start..(start + each).min(layers.end))
        .collect()
}

fn stage(layers: u32, rank: u32, size: u32) -> Range<u32> {
    layers * rank / size..layers * (rank + 1) / size
}

fn apply(range: &CopyRange, from: &[Vec<Option<Meaning>>], to: &mut [Vec<Option<Meaning>>]) {
    let index = |offset: u64| usize::try_from(offset).unwrap();
    let (at, len) = (index(range.src_offset), index(range.len));
    let bytes = &from[range.src_region][at..at + len];
    let place = &mut to[range.dst_region][index(range.dst_offset)..][..len];
    assert!(place.iter().all(Option::is_none), "a byte comes twice");
    place.clone_from_slice(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_rank_gets_all_of_its_bytes_and_every_source_is_heard(
        (p, d) in (1u32..=16, 1u32..=16),
        groups in prop::collection::vec(
            (prop::sample::select(vec![1, 2, 4, 6, 8, 12, 16]), prop::sample::select(vec![1, 2])),
            1..3,
        ),
        states in prop::collection::vec(
            prop::collection::vec(
                (prop::sample::select(vec![1, 2, 4, 8, 16]), any::<bool>()),
                1..3,
            ),
            0..3,
        ),
        (p_pp, staged) in (1u32..=3, any::<bool>()),
        (p_cuts, d_cuts) in (1u32..=3, 1u32..=3),
    ) {
        const PAGES: u32 = 3;
        let (src_pages, dst_pages) = ([2, 0], [1, 2]);
        let (src_items, dst_items) = (vec![1, 2, 0], vec![3, 1, 2]);
        let groups = groups.into_iter().map(|(total, tensors)| Heads { total, tensors });
        let dim = |(total, is_sliced)| Dim { total, is_sliced };
        let states: Vec<Vec<Dim>> = states
            .into_iter()
            .map(|dims| dims.into_iter().map(dim).collect())
            .collect();
        // Sizes that do not fit a state are refused as those that do not fit heads are.
        let sliced = states.iter().flatten().filter(|dim| dim.is_sliced);
        let fits = |total: u32, size: u32| total.is_multiple_of(size) || size.is_multiple_of(total);
        let states_fit = sliced.clone().all(|dim| fits(dim.total, p) && fits(dim.total, d));
        let states = if states_fit { states } else { Vec::new() };
        let tails = (vec![src_items.clone(); states.len()], vec![dst_items.clone(); states.len()]);
        let model = Model { groups: groups.collect(), states, layers: 6 };
        let d_pp = if staged { p_pp } else { 1 };
        let (prefill, decode) = (mk_parallel(p, p_pp), mk_parallel(d, d_pp));
        let mut heard = std::collections::BTreeMap::new();
        let mut required = std::collections::BTreeMap::new();
        for (tp_rank, pp_rank) in (0..d).flat_map(|t| (0..d_pp).map(move |s| (t, s))) {
            let own = RankId { tp_rank, pp_rank, ..RankId::default() };
            let cuts = cut(stage(model.layers, pp_rank, d_pp), d_cuts);
            let dst = mk_layout(&model, tp_rank, d, PAGES, &cuts);
            let Ok(sources) = resolve_rank_mapping(&prefill, &decode, own, &dst) else {
                let fit = |size| model.groups.iter().all(|g| g.tensors == 1 || fits(g.total, size));
                prop_assert!(!fit(p) || !fit(d));
                return Ok(());
            };
            let mut to = fill(&dst, |_| None);
            let mut plans = Vec::new();
            for source in sources {
                let RankId { tp_rank, pp_rank, .. } = source.rank;
                *heard.entry((tp_rank, pp_rank)).or_insert(0) += 1;
                required.insert((tp_rank, pp_rank), source.required_dst_info_num);
                let cuts = cut(stage(model.layers, pp_rank, p_pp), p_cuts);
                let src = mk_layout(&model, tp_rank, p, PAGES, &cuts);
                let from = fill(&src, Some);
                let ends = (mk_end(&src, &prefill, source.rank), mk_end(&dst, &decode, own));
                let plan = TransferPlan::new(ends.0, ends.1);
                let tail = |state_indices, metadata_buffer_index| Tail {
                    state_indices,
                    metadata_buffer_index,
                };
                let mut ranges = plan.page_ranges(&src_pages, &dst_pages);
                ranges.extend(plan.tail_ranges(tail(&tails.0, 0), tail(&tails.1, 1)));
                prop_assert_eq!(plan.is_empty(2), ranges.is_empty());
                for range in ranges {
                    apply(&range, &from, &mut to);
                }
                plans.push(plan);
            }
            let expected = fill(&dst, |(item, what, head, layer, rest)| {
                let (from, to): (&[u32], &[u32]) = match what {
                    ROW => (&[0], &[1]),
                    100.. => (&src_items, &dst_items),
                    _ => (&src_pages, &dst_pages),
                };
                let at = to.iter().position(|&d| d == item)?;
                Some((from[at], what, head, layer, rest))
            });
            prop_assert_eq!(to, expected);
            prop_assert_eq!(check_whole(&dst, &plans.iter().collect::<Vec<_>>()), Ok(()));
        }
        // A source waits for each decode rank of its own stage, or for each there is.
        prop_assert_eq!(heard.len(), (p * p_pp) as usize, "all ranks of prefill are notified");
        for (rank, count) in heard {
            prop_assert_eq!(count, required[&rank], "rank {:?}", rank);
        }
    }
}

/// Ranges that a request of 8,192 tokens takes from one prefill rank to one decode rank: 512 pages of 16
/// slots, no two of them neighbours on either side, 64 layers, 8 KV heads.
fn writes(p: (u32, u32), d: (u32, u32), cuts: u32) -> Vec<usize> {
    let model = Model {
        groups: vec![Heads {
            total: 8,
            tensors: 2,
        }],
        states: Vec::new(),
        layers: 64,
    };
    let pages: Vec<u32> = (0..512).map(|page| page * 2).collect();
    // Decode's regions are cut where prefill's stages meet.
    let stages = p.1 / d.1;
    let dst_cuts = |rank| -> Vec<Range<u32>> {
        let own = stage(64, rank, d.1);
        let each = (own.end - own.start) / stages;
        let stages = (0..stages).map(|nr| own.start + nr * each..own.start + (nr + 1) * each);
        stages.flat_map(|layers| cut(layers, cuts)).collect()
    };
    let own = RankId::default();
    let dst = mk_layout(&model, 0, d.0, 1024, &dst_cuts(0));
    let (prefill, decode) = (mk_parallel(p.0, p.1), mk_parallel(d.0, d.1));
    let sources = resolve_rank_mapping(&prefill, &decode, own, &dst).unwrap();
    let writes = sources.iter().map(|source| {
        let RankId {
            tp_rank, pp_rank, ..
        } = source.rank;
        let cuts = cut(stage(64, pp_rank, p.1), cuts);
        let src = mk_layout(&model, tp_rank, p.0, 1024, &cuts);
        let ends = (
            mk_end(&src, &prefill, source.rank),
            mk_end(&dst, &decode, own),
        );
        TransferPlan::new(ends.0, ends.1)
            .page_ranges(&pages, &pages)
            .len()
    });
    writes.collect()
}

#[test]
fn a_long_request_takes_one_write_per_page_and_cut_for_any_sizes() {
    for cuts in [1, 4] {
        for (p, d) in [
            ((4, 1), (4, 1)),
            ((4, 1), (8, 1)),
            ((8, 1), (4, 1)),
            ((1, 1), (8, 1)),
            ((1, 2), (1, 1)),
        ] {
            let writes = writes(p, d, cuts);
            println!(
                "tp {} pp {} to tp {} pp {}, {cuts} cuts: {writes:?} writes",
                p.0, p.1, d.0, d.1
            );
            for count in writes {
                assert_eq!(count, 512 * cuts as usize, "{p:?} to {d:?}");
            }
        }
    }
}
