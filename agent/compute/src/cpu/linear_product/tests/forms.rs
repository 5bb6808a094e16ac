//! Biases, and epilogues beyond those of a dense decoder.

use super::{Matrix, assert_same_bits, isas, mk_values, run, run_with};
use crate::cpu::isa::Isa;
use crate::cpu::pack::{PackTarget, PackedLinear, serially};
use crate::dtype::{ComputeDtype, WeightFormat};
use crate::k_order::Packing;
use crate::ops::Epilogue;
use crate::weight::WeightSource;
use rand::SeedableRng;
use rand::rngs::StdRng;

const K: usize = 64;
/// No whole number of blocks, plain or interleaved.
const N: usize = 45;
const EPILOGUES: [Epilogue; 6] = [
    Epilogue::Store,
    Epilogue::AddResidual,
    Epilogue::SoftCap(1.5),
    Epilogue::SwiGlu,
    Epilogue::GeluTanhGlu,
    Epilogue::ClampedSwiGlu {
        alpha: 1.702,
        limit: 2.0,
    },
];

/// In f64, of a gate and an up (or of an output twice).
fn expected(epilogue: Epilogue, gate: f64, up: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match epilogue {
        Epilogue::Store => gate,
        Epilogue::AddResidual => 0.25 + gate,
        Epilogue::SwiGlu => gate * sigmoid(gate) * up,
        Epilogue::GeluTanhGlu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
            0.5 * gate * (1.0 + inner.tanh()) * up
        }
        Epilogue::ClampedSwiGlu { alpha, limit } => {
            let (alpha, limit) = (f64::from(alpha), f64::from(limit));
            let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
            gate * sigmoid(alpha * gate) * (up + 1.0)
        }
        Epilogue::SoftCap(cap) => f64::from(cap) * (gate / f64::from(cap)).tanh(),
    }
}

#[test]
fn every_epilogue_comes_after_the_bias() {
    let mut rng = StdRng::seed_from_u64(5);
    let parts = [0, 1].map(|_| Matrix::mk(WeightFormat::F32, N, K, &mut rng));
    for epilogue in EPILOGUES {
        let joins = epilogue.joins_pairs();
        let sources = parts.each_ref().map(Matrix::source);
        let sources = if joins { &sources[..] } else { &sources[..1] };
        let packing = if joins {
            Packing::Interleaved
        } else {
            Packing::JOINED
        };
        let weight = PackedLinear::pack(
            sources,
            packing,
            PackTarget::any(ComputeDtype::F32),
            &serially,
        )
        .expect("matrices that fit");
        let bias = mk_values(N * sources.len(), &mut rng);
        for rows in [1, 7, 30] {
            let x = mk_values(rows * K, &mut rng);
            let run = |isa| run_with(&weight, &x, rows, Some(&bias), epilogue, isa);
            let scalar = run(Isa::Scalar);
            for (i, y) in scalar.iter().enumerate() {
                let (x, column) = (&x[i / N * K..][..K], i % N);
                let sum = |part: &Matrix, bias: f32| f64::from(part.dot(column, x) + bias);
                let (gate, up) = if joins {
                    let up = sum(&parts[1], bias[2 * column + 1]);
                    (sum(&parts[0], bias[2 * column]), up)
                } else {
                    (sum(&parts[0], bias[column]), 0.0)
                };
                let expected = expected(epilogue, gate, up);
                let off = (f64::from(*y) - expected).abs() / expected.abs().max(1.0);
                assert!(off < 1e-6, "{epilogue:?} {y:e} {expected:e}");
            }
            for isa in isas() {
                assert_same_bits(&format!("{isa:?} {epilogue:?}"), &run(isa), &scalar);
            }
        }
    }
}

#[test]
fn a_bias_of_zeros_changes_nothing() {
    let mut rng = StdRng::seed_from_u64(6);
    let matrix = Matrix::mk(WeightFormat::Q8_0, N, K, &mut rng);
    let weight = matrix.packed();
    let x = mk_values(20 * K, &mut rng);
    for isa in isas() {
        let with = run_with(&weight, &x, 20, Some(&[0.0; N]), Epilogue::Store, isa);
        let without = run_with(&weight, &x, 20, None, Epilogue::Store, isa);
        assert_same_bits(&format!("{isa:?}"), &with, &without);
    }
}

#[test]
fn a_residual_is_added_once_to_the_finished_sum() {
    let mut rng = StdRng::seed_from_u64(3);
    let matrix = Matrix::mk(WeightFormat::Q4_1, 45, 64, &mut rng);
    let x = mk_values(30 * 64, &mut rng);
    let weight = matrix.packed();
    for isa in isas() {
        let stored = run(&weight, &x, 30, Epilogue::Store, isa, 2);
        let expected: Vec<f32> = stored.iter().map(|y| 0.25 + y).collect();
        let added = run(&weight, &x, 30, Epilogue::AddResidual, isa, 2);
        assert_same_bits(&format!("{isa:?}"), &added, &expected);
    }
}

#[test]
#[should_panic(expected = "gate and up are joined where the weight interleaves them")]
fn swiglu_of_a_plain_weight_is_refused() {
    let bytes = [0; 8];
    let source = WeightSource {
        name: "w",
        format: WeightFormat::F32,
        n: 2,
        k: 1,
        bytes: &bytes,
        scales: &[],
    };
    let weight = PackedLinear::pack(
        &[source],
        Packing::JOINED,
        PackTarget::any(ComputeDtype::F32),
        &serially,
    )
    .expect("a matrix that fits");
    run(&weight, &[1.0], 1, Epilogue::SwiGlu, Isa::Scalar, 1);
}

#[test]
fn parts_of_different_formats_write_their_own_columns() {
    let mut rng = StdRng::seed_from_u64(4);
    let q = Matrix::mk(WeightFormat::Q4K, 50, 256, &mut rng);
    let k = Matrix::mk(WeightFormat::BF16, 20, 256, &mut rng);
    let v = Matrix::mk(WeightFormat::Q6K, 33, 256, &mut rng);
    let x = mk_values(5 * 256, &mut rng);
    let parts = [q.source(), k.source(), v.source()];
    let joined = PackedLinear::pack(
        &parts,
        Packing::JOINED,
        PackTarget::any(ComputeDtype::F32),
        &serially,
    )
    .expect("matrices that fit");
    let expected: Vec<f32> = x
        .chunks_exact(256)
        .flat_map(|x| {
            let parts = [&q, &k, &v].into_iter();
            parts
                .flat_map(|m| (0..m.n).map(|row| m.dot(row, x)))
                .collect::<Vec<_>>()
        })
        .collect();
    for isa in isas() {
        let y = run(&joined, &x, 5, Epilogue::Store, isa, 3);
        assert_same_bits(&format!("{isa:?}"), &y, &expected);
    }
}
