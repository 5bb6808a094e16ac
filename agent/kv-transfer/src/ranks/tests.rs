//! The rank table of the reference, row by row.

use super::*;
use pd_protocol::layout::{KvCut, KvDtype, KvGroup, PAGE_ORDER};
use pd_protocol::metadata::MetadataLayout;

fn mk_layout(tensors: u32) -> KvLayout {
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 1,
        pages: 1,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Float32,
            head_dim: 1,
            tensors,
            total_heads: 1,
            head_start: 0,
            heads: 1,
            cuts: vec![KvCut {
                first_layer: 0,
                layers: 1,
            }],
        }],
        states: Vec::new(),
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Float32,
        },
        metadata_rows: 1,
    }
}

fn mk_parallel(tp_size: u32, pp_size: u32) -> ParallelLayout {
    ParallelLayout {
        tp_size,
        pp_size,
        ..ParallelLayout::SINGLE
    }
}

/// `(tp_rank, pp_rank, is_dummy)` of each target, and the count.
type Mapped = (Vec<(u32, u32, bool)>, u32);

fn map(
    (p_tp, p_pp): (u32, u32),
    (d_tp, d_pp): (u32, u32),
    tp_rank: u32,
    tensors: u32,
) -> Result<Mapped, MappingError> {
    let own = RankId {
        tp_rank,
        ..RankId::default()
    };
    let (p, d) = (mk_parallel(p_tp, p_pp), mk_parallel(d_tp, d_pp));
    let mapping = resolve_rank_mapping(&p, &d, own, &mk_layout(tensors))?;
    let targets = mapping.targets.iter();
    let targets = targets.map(|t| (t.rank.tp_rank, t.rank.pp_rank, t.is_dummy));
    Ok((targets.collect(), mapping.required_dst_info_num))
}

#[test]
fn equal_sizes_pair_rank_by_rank() {
    assert_eq!(map((4, 1), (4, 1), 2, 2), Ok((vec![(2, 0, false)], 1)));
}

#[test]
fn a_wider_decode_shares_a_prefill_rank() {
    assert_eq!(map((2, 1), (4, 1), 3, 2), Ok((vec![(1, 0, false)], 2)));
}

#[test]
fn a_narrower_decode_gathers_from_several() {
    let targets = vec![(2, 0, false), (3, 0, false)];
    assert_eq!(map((4, 1), (2, 1), 1, 2), Ok((targets, 1)));
}

#[test]
fn a_latent_comes_from_one_rank_and_the_others_count() {
    let targets = vec![(2, 0, false), (3, 0, true)];
    assert_eq!(map((4, 1), (2, 1), 1, 1), Ok((targets, 1)));
}

#[test]
fn an_unstaged_decode_gathers_every_stage() {
    let targets = vec![(0, 0, false), (0, 1, false)];
    assert_eq!(map((1, 2), (1, 1), 0, 2), Ok((targets, 1)));
}

#[test]
fn sizes_that_do_not_divide_are_refused() {
    assert!(map((3, 1), (2, 1), 0, 2).is_err());
    assert!(map((1, 4), (1, 2), 0, 2).is_err());
}
