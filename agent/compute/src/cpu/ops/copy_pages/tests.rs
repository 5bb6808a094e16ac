//! Proves that copied rows and pages are the right ones, in both directions and over several cuts.

use crate::buffer::DeviceBuffer as _;
use crate::cpu::backend::tests::{floats, mk_backend, noise_floats, read_floats, words, zeros};
use crate::cpu::{CpuBackend, Isa};
use crate::dtype::DType;
use crate::kv::{KvCutView, KvGroupView};
use crate::ops::{Backend, CopyDirection, CopyPages, GatherRows, NO_ROW};
use std::sync::Arc;

const PAGE_SIZE: usize = 4;
const HEAD_DIM: usize = 8;
const KV_HEADS: usize = 2;
const NUM_PAGES: usize = 5;
/// Elements of a page per layer.
const LAYER_LEN: usize = KV_HEADS * 2 * PAGE_SIZE * HEAD_DIM;

#[test]
fn rows_are_gathered_and_no_row_is_left_alone() {
    let backend = mk_backend(2, Isa::detect());
    let src = words(&backend, &[10, 11, 20, 21, 30, 31]);
    let out = words(&backend, &[1; 6]);
    let indices = words(&backend, &[2, NO_ROW, 0]);
    let op = GatherRows {
        src: &src,
        indices: &indices,
        out: &out,
        row_len: 2,
        rows: 3,
    };
    backend.gather_rows(op);
    let out = backend.read(&out);
    let out = crate::Ticket::wait(out).unwrap();
    assert_eq!(out.as_slice::<u32>(), [30, 31, 1, 1, 10, 11]);
}

#[test]
fn pages_of_all_cuts_leave_and_come_back_to_other_places() {
    let backend = mk_backend(2, Isa::detect());
    // Three layers in a cut of two and a cut of one.
    let regions = [(1, 2), (2, 1)].map(|(seed, layers)| {
        floats(
            &backend,
            &noise_floats(seed, NUM_PAGES * layers * LAYER_LEN),
        )
    });
    let cut = |i: usize, first, layers| {
        let region = regions[i].clone();
        KvCutView::page_first(
            region,
            first..first + layers,
            2,
            KV_HEADS,
            PAGE_SIZE,
            HEAD_DIM,
        )
    };
    let kv = KvGroupView::<CpuBackend> {
        dtype: DType::F32,
        page_size: PAGE_SIZE,
        num_pages: NUM_PAGES,
        num_kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        tensors: 2,
        cuts: Arc::new([cut(0, 0, 2), cut(1, 2, 1)]),
    };
    assert_eq!(
        (kv.cut_of(1).0.first_layer, kv.cut_of(2).0.first_layer),
        (0, 2)
    );
    let before = regions
        .each_ref()
        .map(|region| read_floats(&backend, region));
    let host = zeros(&backend, 2 * 3 * LAYER_LEN);
    let copy = |pages: [u32; 2], direction| {
        let page_indices = &words(&backend, &pages);
        let (kv, host) = (&kv, &host);
        backend.copy_pages(CopyPages {
            kv,
            page_indices,
            num_pages: 2,
            host,
            direction,
        });
    };
    copy([4, 1], CopyDirection::PoolToHost);
    let page = |cut: usize, page: usize, layers: usize| {
        &before[cut][page * layers * LAYER_LEN..(page + 1) * layers * LAYER_LEN]
    };
    let expected = [page(0, 4, 2), page(1, 4, 1), page(0, 1, 2), page(1, 1, 1)].concat();
    assert_eq!(read_floats(&backend, &host), expected);

    copy([0, 4], CopyDirection::HostToPool);
    let after = regions
        .each_ref()
        .map(|region| read_floats(&backend, region));
    for (cut, layers) in [(0, 2), (1, 1)] {
        for (to, from) in [(0, 4), (1, 1), (2, 2), (3, 3), (4, 1)] {
            let len = layers * LAYER_LEN;
            assert_eq!(
                after[cut][to * len..(to + 1) * len],
                *page(cut, from, layers)
            );
        }
    }
    assert_eq!(host.size_bytes(), 2 * 3 * LAYER_LEN * 4);
}
