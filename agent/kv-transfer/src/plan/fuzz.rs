//! Any layout, pool and pages of a peer, as a registration or its answer brings them: refused, or planned within the memory
//! of both sides.

use super::*;
use crate::items;
use crate::ranks::resolve_rank_mapping;
use pd_fuzz::{Memory, fuzz};
use pd_protocol::compat::{KvMeaning, check_pair};
use pd_protocol::layout::{
    KvCut, KvDtype, KvGroup, PAGE_ORDER, StateLayout, StateTensor, StateType,
};
use pd_protocol::metadata::MetadataLayout;
use serde::{Deserialize, Serialize};

/// Pages of a request are named by four bytes each, and a page has a range in each pair of cuts.
const MEMORY: Memory = Memory {
    base: 8 << 20,
    per_byte: 4096,
};

/// What a peer says; in JSON, which mutates better than MessagePack.
#[derive(Debug, Serialize, Deserialize)]
struct Peer {
    layout: KvLayout,
    parallel: ParallelLayout,
    rank: RankId,
    own_tp: u32,
    own_rank: u32,
    pages: Vec<u32>,
    states: Vec<Vec<u32>>,
    row: u32,
}

fn mk_own() -> KvLayout {
    let cut = |first_layer, layers| KvCut {
        first_layer,
        layers,
    };
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
        order: PAGE_ORDER.to_owned(),
        page_size: 2,
        pages: 6,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Fp8E4m3,
            head_dim: 3,
            tensors: 2,
            total_heads: 8,
            head_start: 0,
            heads: 8,
            cuts: vec![cut(0, 2), cut(2, 3)],
        }],
        states: vec![StateLayout {
            name: "recurrent".to_owned(),
            state_type: StateType::Swa,
            slots: 5,
            tensors: vec![tensor("conv", 8, 3), tensor("ssm", 4, 5)],
        }],
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Float32,
        },
        metadata_rows: 1,
    }
}

#[test]
fn plan() {
    fuzz!("plan", MEMORY, |bytes| {
        let Ok(peer) = serde_json::from_slice::<Peer>(bytes) else {
            return;
        };
        if let Ok(checked) = rmp_serde::to_vec_named(&peer) {
            assert!(rmp_serde::from_slice::<Peer>(&checked).is_ok());
        }
        let own = mk_own();
        let tp_size = peer.own_tp.clamp(1, 16);
        let parallel = ParallelLayout {
            tp_size,
            ..ParallelLayout::SINGLE
        };
        let rank = RankId {
            tp_rank: peer.own_rank % tp_size,
            ..RankId::default()
        };
        let here = End {
            layout: &own,
            parallel: &parallel,
            rank,
        };
        let _ = resolve_rank_mapping(&peer.parallel, &parallel, rank, &own);
        check(here, &peer);
    });
}

fn check(here: End<'_>, peer: &Peer) {
    let meaning = |layout| KvMeaning {
        kv_compat: "",
        layout,
    };
    let fits = peer.layout.validate().is_ok()
        && check_pair(meaning(here.layout), meaning(&peer.layout)).is_ok();
    let named = items::check_pages(&peer.layout, &peer.pages)
        .and_then(|()| items::check_row(&peer.layout, peer.row))
        .and_then(|()| items::check_states(&peer.layout, &peer.states, peer.pages.len()));
    if !fits || named.is_err() {
        return;
    }
    let there = End {
        layout: &peer.layout,
        parallel: &peer.parallel,
        rank: peer.rank,
    };
    for (src, dst) in [(here, there), (there, here)] {
        let plan = TransferPlan::new(src, dst);
        let row = [peer.row];
        let tail = Tail {
            state_indices: &peer.states,
            metadata_buffer_index: row[0],
        };
        let theirs = if std::ptr::eq(dst.layout, here.layout) {
            (
                plan.src_page_spans(&peer.pages),
                plan.src_tail_spans(tail),
                src.layout,
            )
        } else {
            (
                plan.dst_page_spans(&peer.pages),
                plan.dst_tail_spans(tail),
                dst.layout,
            )
        };
        let (pages, tails, layout) = theirs;
        let lens = layout.region_lens();
        for span in pages.iter().chain(&tails) {
            let end = span.offset.checked_add(span.len);
            assert!(
                end.is_some_and(|end| end <= lens[span.region]),
                "{span:?} leaves {lens:?}"
            );
        }
        let _ = (plan.page_bytes(), plan.is_empty(peer.pages.len()));
        let _ = check_whole(dst.layout, &[&plan]);
    }
}
