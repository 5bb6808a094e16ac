//! Facts about preparing queries, keys and values.

use crate::buffer::{DeviceBuffer as _, Ticket as _};
use crate::cpu::backend::tests::{
    floats, isas, mk_backend, noise_floats, read_floats, words, zeros,
};
use crate::cpu::{CpuBackend, CpuBuffer, Isa};
use crate::dtype::DType;
use crate::e4m3;
use crate::kv::{KvCutView, KvGroupView, KvScales, NO_SLOT};
use crate::ops::{Backend, BatchView, QkvPrep, RopeTable};
use std::sync::Arc;

const HEAD_DIM: usize = 8;
const Q_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const ROW: usize = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM;
const PAGE_SIZE: usize = 4;
const LAYERS: usize = 3;
const LAYER: usize = 1;
const POOL_LEN: usize = 3 * KV_HEADS * LAYERS * 2 * PAGE_SIZE * HEAD_DIM;
const POSITIONS: [u32; 3] = [5, 6, 900];
const SLOTS: [u32; 3] = [9, NO_SLOT, 2];

/// Queries and pool after preparing three rows.
fn prepare(isa: Isa, threads: usize) -> (Vec<f32>, Vec<f32>) {
    prepare_rows(isa, threads, ROW, HEAD_DIM)
}

/// The same of rows `row_stride` apart, what lies between them being NaN.
fn prepare_rows(
    isa: Isa,
    threads: usize,
    row_stride: usize,
    rotary_dim: usize,
) -> (Vec<f32>, Vec<f32>) {
    let backend = mk_backend(threads, isa);
    let region = zeros(&backend, POOL_LEN);
    let qkv = prepare_in(&backend, &region, KvScales::ONE, row_stride, rotary_dim);
    (qkv, read_floats(&backend, &region))
}

/// The queries; keys and values are in the region.
fn prepare_in(
    backend: &CpuBackend,
    region: &CpuBuffer,
    scales: KvScales,
    row_stride: usize,
    rotary_dim: usize,
) -> Vec<f32> {
    let cut = KvCutView::page_first(region.clone(), 0..LAYERS, 2, KV_HEADS, PAGE_SIZE, HEAD_DIM);
    let kv = KvGroupView::<CpuBackend> {
        dtype: region.dtype(),
        page_size: PAGE_SIZE,
        num_pages: 3,
        num_kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        tensors: 2,
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
    let rope = zeros(backend, 3 * HEAD_DIM);
    backend.rope_table(RopeTable {
        positions: &batch.positions,
        inv_freq: &floats(backend, &[1.0, 0.1, 0.01, 0.001]),
        factor: 1.0,
        out: &rope,
        rows: 3,
    });
    let mut rows = Vec::new();
    for row in noise_floats(1, 3 * ROW).chunks_exact(ROW) {
        rows.extend(row);
        rows.resize(rows.len() + row_stride - ROW, f32::NAN);
    }
    let qkv = floats(backend, &rows);
    let norms = floats(backend, &noise_floats(2, 2 * HEAD_DIM));
    backend.qkv_prep(QkvPrep {
        qkv: &qkv,
        row_stride,
        bias: Some(&floats(backend, &noise_floats(3, ROW))),
        q_norm: Some(&norms.slice(0..HEAD_DIM)),
        k_norm: Some(&norms.slice(HEAD_DIM..2 * HEAD_DIM)),
        eps: 1e-6,
        rope: &rope,
        rotary_dim,
        num_q_heads: Q_HEADS,
        batch: &batch,
        kv: &kv,
        kv_scales: scales,
        layer: LAYER,
    });
    read_floats(backend, &qkv)
}

/// One head: bias, norm, rotation, in f64.
fn expected_head(row: usize, head: usize, norm: usize) -> Vec<f64> {
    let (x, bias) = (noise_floats(1, 3 * ROW), noise_floats(3, ROW));
    let at = head * HEAD_DIM;
    let x: Vec<f64> = (0..HEAD_DIM)
        .map(|i| f64::from(x[row * ROW + at + i] + bias[at + i]))
        .collect();
    let mean = x.iter().map(|x| x * x).sum::<f64>() / HEAD_DIM as f64;
    let weight = noise_floats(2, 2 * HEAD_DIM);
    let x: Vec<f64> = (0..HEAD_DIM)
        .map(|i| x[i] / (mean + 1e-6).sqrt() * f64::from(weight[norm * HEAD_DIM + i]))
        .collect();
    let half = HEAD_DIM / 2;
    let angle = |i: usize| f64::from(POSITIONS[row]) * [1.0, 0.1, 0.01, 0.001][i];
    let first = (0..half).map(|i| x[i] * angle(i).cos() - x[half + i] * angle(i).sin());
    let second = (0..half).map(|i| x[half + i] * angle(i).cos() + x[i] * angle(i).sin());
    first.chain(second).collect()
}

fn assert_near(values: &[f32], expected: &[f64]) {
    for (value, expected) in values.iter().zip(expected) {
        assert!(
            (f64::from(*value) - expected).abs() < 1e-4,
            "{value} beside {expected}"
        );
    }
}

#[test]
fn queries_and_keys_are_biased_normed_and_rotated_and_values_only_biased() {
    for isa in isas() {
        let (qkv, pool) = prepare(isa, 2);
        for row in 0..3 {
            for head in 0..Q_HEADS {
                let q = &qkv[row * ROW + head * HEAD_DIM..][..HEAD_DIM];
                assert_near(q, &expected_head(row, head, 0));
            }
        }
        let (x, bias) = (noise_floats(1, 3 * ROW), noise_floats(3, ROW));
        let head_len = LAYERS * 2 * PAGE_SIZE * HEAD_DIM;
        for (row, slot) in [(0, 9), (2, 2)] {
            for kv_head in 0..KV_HEADS {
                let at = slot / PAGE_SIZE * KV_HEADS * head_len
                    + kv_head * head_len
                    + LAYER * 2 * PAGE_SIZE * HEAD_DIM
                    + slot % PAGE_SIZE * HEAD_DIM;
                assert_near(&pool[at..], &expected_head(row, Q_HEADS + kv_head, 1));
                let from = (Q_HEADS + KV_HEADS + kv_head) * HEAD_DIM;
                for i in 0..HEAD_DIM {
                    let v = x[row * ROW + from + i] + bias[from + i];
                    assert_eq!(pool[at + PAGE_SIZE * HEAD_DIM + i], v);
                }
            }
        }
        let written = pool.iter().filter(|x| **x != 0.0).count();
        assert_eq!(
            written,
            2 * KV_HEADS * 2 * HEAD_DIM,
            "nothing else is written"
        );
    }
}

#[test]
fn every_instruction_set_and_thread_count_gives_the_same_bits() {
    let one = prepare(Isa::Scalar, 1);
    for isa in isas() {
        assert_eq!(prepare(isa, 3), one, "{}", isa.name());
    }
}

#[test]
fn what_follows_q_k_and_v_in_a_row_is_left_alone() {
    for isa in isas() {
        let (plain, pool) = prepare(isa, 1);
        let (wide, wide_pool) = prepare_rows(isa, 2, ROW + 24, HEAD_DIM);
        assert_eq!(wide_pool, pool);
        for (row, plain) in wide.chunks_exact(ROW + 24).zip(plain.chunks_exact(ROW)) {
            assert_eq!(row[..ROW], *plain);
            assert!(row[ROW..].iter().all(|x| x.is_nan()));
        }
    }
}

#[test]
fn without_rotary_dimensions_nothing_is_rotated() {
    let (bias, x) = (noise_floats(3, ROW), noise_floats(1, 3 * ROW));
    let weight = noise_floats(2, HEAD_DIM);
    let (qkv, _) = prepare_rows(Isa::detect(), 1, ROW, 0);
    for row in 0..3 {
        let head = |i: usize| f64::from(x[row * ROW + i] + bias[i]);
        let mean = (0..HEAD_DIM).map(|i| head(i).powi(2)).sum::<f64>() / HEAD_DIM as f64;
        let normed = |i| head(i) / (mean + 1e-6).sqrt() * f64::from(weight[i]);
        let expected: Vec<f64> = (0..HEAD_DIM).map(normed).collect();
        assert_near(&qkv[row * ROW..][..HEAD_DIM], &expected);
    }
}

#[test]
fn a_pool_of_e4m3_holds_the_nearest_codes_and_counts_what_lies_beyond() {
    let (queries, plain) = prepare(Isa::Scalar, 1);
    // Scales by which some of the keys lie beyond 448, and none of the values.
    let scales = KvScales { k: 0.003, v: 0.75 };
    for isa in isas() {
        let backend = mk_backend(2, isa);
        let region = backend.alloc("kv", DType::F8E4M3, POOL_LEN).unwrap();
        let qkv = prepare_in(&backend, &region, scales, ROW, HEAD_DIM);
        assert_eq!(qkv, queries, "queries are not rounded");
        let codes: Vec<u8> = backend.read(&region).wait().unwrap().as_slice().to_vec();
        let kv_len = PAGE_SIZE * HEAD_DIM;
        let mut beyond = 0;
        for (at, (code, value)) in codes.iter().zip(&plain).enumerate() {
            let is_value = at / kv_len % 2 == 1;
            let stored = value / if is_value { scales.v } else { scales.k };
            beyond += u64::from(stored.abs() > 448.0);
            assert_eq!(*code, e4m3::rounded(stored), "{at}: {stored}");
        }
        assert!(beyond > 0);
        assert_eq!(backend.kv_saturations(), beyond);
    }
}
