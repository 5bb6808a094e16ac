//! Facts about products of heads.

#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use crate::cpu::Isa;
use crate::cpu::backend::tests::{floats, isas, mk_backend, noise_floats, read_floats};
use crate::dtype::WeightFormat;
use crate::k_order::Packing;
use crate::ops::{Backend, HeadLinear, HeadRows};
use crate::weight::WeightSource;

/// Sizes of a case. Heads of the weight end within blocks of 32 rows.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    k: usize,
    n: usize,
    x_stride: usize,
    out_stride: usize,
}

const SHAPE: Shape = Shape {
    heads: 3,
    k: 20,
    n: 40,
    x_stride: 27,
    out_stride: 44,
};

/// What stands in the output before.
const BEFORE: f32 = 7.0;

fn x_of(row: usize) -> Vec<f32> {
    noise_floats(row as u64, SHAPE.heads * SHAPE.x_stride)
}

fn weight_of(head: usize) -> Vec<f32> {
    noise_floats(1000 + head as u64, SHAPE.n * SHAPE.k)
}

fn product(isa: Isa, threads: usize, rows: std::ops::Range<usize>) -> Vec<f32> {
    let Shape {
        heads,
        k,
        n,
        x_stride,
        out_stride,
    } = SHAPE;
    let backend = mk_backend(threads, isa);
    let weights: Vec<Vec<f32>> = (0..heads).map(weight_of).collect();
    let parts: Vec<_> = weights
        .iter()
        .map(|weight| WeightSource {
            name: "heads",
            format: WeightFormat::F32,
            n,
            k,
            bytes: bytemuck::cast_slice(weight),
            scales: &[],
        })
        .collect();
    let x: Vec<f32> = rows.clone().flat_map(x_of).collect();
    let before = vec![BEFORE; rows.len() * heads * out_stride];
    let out = floats(&backend, &before);
    backend.head_linear(HeadLinear {
        x: HeadRows {
            values: &floats(&backend, &x),
            head_stride: x_stride,
        },
        weight: &backend.pack_linear(&parts, Packing::JOINED).unwrap(),
        heads,
        out: HeadRows {
            values: &out,
            head_stride: out_stride,
        },
        rows: rows.len(),
    });
    read_floats(&backend, &out)
}

#[test]
fn each_head_is_multiplied_by_its_own_matrix_and_what_lies_between_heads_stays() {
    let Shape {
        heads,
        k,
        n,
        x_stride,
        out_stride,
    } = SHAPE;
    for isa in isas() {
        for rows in [1, 2, 30] {
            let out = product(isa, 2, 0..rows);
            for (i, out) in out.chunks(out_stride).enumerate() {
                let (row, head) = (i / heads, i % heads);
                let (x, weight) = (x_of(row), weight_of(head));
                let x = &x[head * x_stride..][..k];
                for (j, y) in out[..n].iter().enumerate() {
                    let terms = x.iter().zip(&weight[j * k..(j + 1) * k]);
                    let expected: f64 = terms.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                    let off = (f64::from(*y) - expected).abs();
                    assert!(off < 1e-5, "row {row} head {head}: {y} {expected}");
                }
                assert!(
                    out[n..].iter().all(|x| *x == BEFORE),
                    "row {row} head {head}"
                );
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_rows_threads_or_instructions() {
    let row_len = SHAPE.heads * SHAPE.out_stride;
    let all = product(Isa::Scalar, 1, 0..500);
    for isa in isas() {
        for threads in [1, 3] {
            assert_eq!(product(isa, threads, 0..500), all, "{}", isa.name());
            let one = product(isa, threads, 300..301);
            assert_eq!(one, all[300 * row_len..301 * row_len], "{}", isa.name());
        }
    }
}
