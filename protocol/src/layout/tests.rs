//! Facts about KV descriptors.

use super::*;

fn mk_layout() -> KvLayout {
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 16,
        pages: 8,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Bfloat16,
            head_dim: 64,
            tensors: 2,
            total_heads: 4,
            head_start: 2,
            heads: 2,
            cuts: vec![
                KvCut {
                    first_layer: 0,
                    layers: 3,
                },
                KvCut {
                    first_layer: 3,
                    layers: 1,
                },
            ],
        }],
        states: Vec::new(),
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Bfloat16,
        },
        metadata_rows: 4,
    }
}

#[test]
fn a_page_of_a_cut_is_heads_times_layers_times_kv_times_slots_times_dim() {
    let layout = mk_layout();
    let bytes: Vec<u64> = layout
        .regions()
        .map(|(g, c)| layout.region_bytes(g, c))
        .collect();
    assert_eq!(
        bytes,
        [8 * 2 * 3 * 2 * 16 * 64 * 2, 8 * 2 * 2 * 16 * 64 * 2]
    );
}

#[test]
fn a_foreign_page_order_is_refused() {
    let mut layout = mk_layout();
    layout.order = "layer,page".to_owned();
    assert_eq!(
        layout.validate(),
        Err(LayoutError::Order("layer,page".to_owned()))
    );
}

#[test]
fn heads_beyond_the_model_are_refused() {
    let mut layout = mk_layout();
    layout.groups[0].head_start = 3;
    assert!(matches!(
        layout.validate(),
        Err(LayoutError::Heads { end: 5, .. })
    ));
}

#[test]
fn a_size_beyond_63_bits_is_refused() {
    let mut layout = mk_layout();
    layout.pages = u32::MAX;
    layout.page_size = 65_536;
    layout.groups[0].head_dim = 65_536;
    assert_eq!(layout.validate(), Err(LayoutError::TooLarge));
}

#[test]
fn unique_ranks_of_a_group_are_distinct() {
    let layout = ParallelLayout {
        tp_size: 3,
        cp_size: 2,
        dp_size: 1,
        pp_size: 4,
    };
    let mut seen: Vec<u32> = (0..3)
        .flat_map(|tp_rank| (0..4).map(move |pp_rank| (tp_rank, pp_rank)))
        .flat_map(|(tp_rank, pp_rank)| {
            (0..2).map(move |cp_rank| RankId {
                dp_rank: 0,
                cp_rank,
                tp_rank,
                pp_rank,
            })
        })
        .map(|rank| rank.unique_rank(&layout))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..24).collect::<Vec<_>>());
}
