//! AMX's products against the order of sums that its kernels promise.

use super::{Matrix, assert_same_bits, mk_values, run};
use crate::cpu::isa::Isa;
use crate::cpu::pack::{PackTarget, PackedLinear, serially};
use crate::dtype::{ComputeDtype, WeightFormat};
use crate::k_order::Packing;
use crate::ops::Epilogue;
use half::bf16;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Thirty-two k at a time: chains over even k and over odd k from 0, whose sum is added.
fn sum(x: &[f32], weights: &[f32]) -> f32 {
    let chain = |x: &[f32], weights: &[f32], first: usize| {
        let products = x.iter().zip(weights).skip(first).step_by(2);
        products.fold(0.0_f32, |sum, (x, w)| x.mul_add(*w, sum))
    };
    let steps = x.chunks(32).zip(weights.chunks(32));
    steps.fold(0.0, |sum, (x, w)| sum + (chain(x, w, 0) + chain(x, w, 1)))
}

#[test]
fn thirty_two_k_are_two_chains_whose_sum_is_added() {
    if !Isa::Amx.is_available() {
        eprintln!("skipped: no AMX here");
        return;
    }
    let mut rng = StdRng::seed_from_u64(21);
    let target = PackTarget {
        dtype: ComputeDtype::BF16,
        isa: Isa::Amx,
    };
    for k in [1, 2, 31, 32, 33, 64, 100, 576, 1536] {
        let (n, rows) = (45, 37);
        let matrix = Matrix::mk(WeightFormat::BF16, n, k, &mut rng);
        let x = mk_values(rows * k, &mut rng);
        let weight = PackedLinear::pack(&[matrix.source()], Packing::JOINED, target, &serially)
            .expect("a matrix that fits");
        let rounded: Vec<f32> = x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
        let rows_of_weights = || matrix.values.chunks_exact(k);
        let expected: Vec<f32> = rounded
            .chunks_exact(k)
            .flat_map(|x| rows_of_weights().map(|weights| sum(x, weights)))
            .collect();
        let y = run(&weight, &x, rows, Epilogue::Store, Isa::Amx, 2);
        assert_same_bits(&format!("k {k}"), &y, &expected);
    }
}
