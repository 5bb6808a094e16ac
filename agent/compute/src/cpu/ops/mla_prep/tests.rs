//! Facts about preparing the rows of multi-head latent attention.

use crate::buffer::{DeviceBuffer as _, Ticket as _};
use crate::cpu::backend::tests::{
    floats, isas, mk_backend, noise_floats, read_floats, words, zeros,
};
use crate::cpu::{CpuBackend, CpuBuffer, Isa};
use crate::dtype::DType;
use crate::e4m3;
use crate::kv::{KvCutView, KvGroupView, KvScales, NO_SLOT};
use crate::ops::{Backend, BatchView, MlaPrep, RopeTable};
use std::sync::Arc;

const HEADS: usize = 3;
const NOPE: usize = 5;
const ROPE: usize = 4;
const LATENT: usize = 24;
const HEAD_DIM: usize = LATENT + ROPE;
const PAGE_SIZE: usize = 4;
const LAYERS: usize = 3;
const LAYER: usize = 1;
const POOL_LEN: usize = 3 * LAYERS * PAGE_SIZE * HEAD_DIM;
const POSITIONS: [u32; 3] = [5, 6, 900];
const SLOTS: [u32; 3] = [9, NO_SLOT, 2];
const INV_FREQ: [f32; 2] = [1.0, 0.1];

/// Queries and pool after preparing three rows.
fn prepare(isa: Isa, threads: usize) -> (Vec<f32>, Vec<f32>) {
    let backend = mk_backend(threads, isa);
    let region = zeros(&backend, POOL_LEN);
    let q_out = prepare_in(&backend, &region, KvScales::ONE);
    (q_out, read_floats(&backend, &region))
}

/// Queries after preparing three rows, whose latents go to `region`.
fn prepare_in(backend: &CpuBackend, region: &CpuBuffer, kv_scales: KvScales) -> Vec<f32> {
    let cut = KvCutView::page_first(region.clone(), 0..LAYERS, 1, 1, PAGE_SIZE, HEAD_DIM);
    let kv = KvGroupView::<CpuBackend> {
        dtype: region.dtype(),
        page_size: PAGE_SIZE,
        num_pages: 3,
        num_kv_heads: 1,
        head_dim: HEAD_DIM,
        tensors: 1,
        cuts: Arc::new([cut]),
    };
    let none = words(backend, &[]);
    let batch = BatchView {
        num_tokens: 3,
        num_seqs: 1,
        token_ids: none.clone(),
        positions: words(backend, &POSITIONS),
        q_indptr: none.clone(),
        kv_lens: none.clone(),
        page_table: none,
        page_table_stride: 0,
        out_slots: words(backend, &SLOTS),
    };
    let rope = zeros(backend, 3 * ROPE);
    backend.rope_table(RopeTable {
        positions: &batch.positions,
        inv_freq: &floats(backend, &INV_FREQ),
        factor: 1.0,
        out: &rope,
        rows: 3,
    });
    let q_out = zeros(backend, 3 * HEADS * HEAD_DIM);
    backend.mla_prep(MlaPrep {
        q: &floats(backend, &noise_floats(1, 3 * HEADS * (NOPE + ROPE))),
        num_heads: HEADS,
        nope_dim: NOPE,
        latent: &floats(backend, &noise_floats(2, 3 * HEAD_DIM)),
        norm: &floats(backend, &noise_floats(3, LATENT)),
        eps: 1e-6,
        rope: &rope,
        batch: &batch,
        kv: &kv,
        kv_scales,
        layer: LAYER,
        q_out: &q_out,
    });
    read_floats(backend, &q_out)
}

fn rotated(x: &[f32], row: usize) -> Vec<f64> {
    let half = ROPE / 2;
    let angle = |i: usize| f64::from(POSITIONS[row]) * f64::from(INV_FREQ[i]);
    let (a, b) = (
        |i: usize| f64::from(x[i]),
        |i: usize| f64::from(x[half + i]),
    );
    let first = (0..half).map(|i| a(i) * angle(i).cos() - b(i) * angle(i).sin());
    let second = (0..half).map(|i| b(i) * angle(i).cos() + a(i) * angle(i).sin());
    first.chain(second).collect()
}

/// A latent after its norm and its key, in f64.
fn expected_latent(row: usize) -> Vec<f64> {
    let x = noise_floats(2, 3 * HEAD_DIM);
    let (latent, key) = x[row * HEAD_DIM..(row + 1) * HEAD_DIM].split_at(LATENT);
    let squares = latent.iter().map(|x| f64::from(*x) * f64::from(*x));
    let scale = (squares.sum::<f64>() / LATENT as f64 + 1e-6).sqrt();
    let weights = noise_floats(3, LATENT);
    let normed = latent.iter().zip(weights);
    let normed = normed.map(|(x, weight)| f64::from(*x) / scale * f64::from(weight));
    normed.chain(rotated(key, row)).collect()
}

fn assert_near(values: &[f32], expected: &[f64]) {
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        let off = (f64::from(*value) - expected).abs();
        assert!(off < 1e-4, "{value} beside {expected}");
    }
}

#[test]
fn latents_are_normed_and_keys_rotated_into_their_slots_and_queries_to_the_ends_of_heads() {
    let q = noise_floats(1, 3 * HEADS * (NOPE + ROPE));
    for isa in isas() {
        let (q_out, pool) = prepare(isa, 2);
        for head in 0..3 * HEADS {
            let out = &q_out[head * HEAD_DIM..(head + 1) * HEAD_DIM];
            let q = &q[head * (NOPE + ROPE) + NOPE..][..ROPE];
            assert_near(&out[LATENT..], &rotated(q, head / HEADS));
            assert!(out[..LATENT].iter().all(|x| *x == 0.0), "left as it was");
        }
        let mut rest = pool.clone();
        for (row, slot) in [(0, 9), (2, 2)] {
            let page = slot / PAGE_SIZE * LAYERS + LAYER;
            let at = (page * PAGE_SIZE + slot % PAGE_SIZE) * HEAD_DIM;
            assert_near(&pool[at..at + HEAD_DIM], &expected_latent(row));
            rest[at..at + HEAD_DIM].fill(0.0);
        }
        assert!(rest.iter().all(|x| *x == 0.0), "no other slot was written");
        assert_eq!(prepare(Isa::Scalar, 1), (q_out, pool), "bits");
    }
}

#[test]
fn a_pool_of_e4m3_holds_the_nearest_codes_of_latents_and_keys_by_the_scale_of_keys() {
    let (queries, plain) = prepare(Isa::Scalar, 1);
    // By it some lie beyond 448.
    let scales = KvScales { k: 0.003, v: 0.003 };
    for isa in isas() {
        let backend = mk_backend(2, isa);
        let region = backend.alloc("kv", DType::F8E4M3, POOL_LEN).unwrap();
        let q_out = prepare_in(&backend, &region, scales);
        assert_eq!(q_out, queries, "queries are not rounded");
        let codes: Vec<u8> = backend.read(&region).wait().unwrap().as_slice().to_vec();
        let mut beyond = 0;
        for (at, (code, value)) in codes.iter().zip(&plain).enumerate() {
            let stored = value / scales.k;
            beyond += u64::from(stored.abs() > 448.0);
            assert_eq!(*code, e4m3::rounded(stored), "{at}: {stored}");
        }
        assert!(beyond > 0);
        assert_eq!(backend.kv_saturations(), beyond);
    }
}
