//! Every instruction set, format and shape against the chain of operations that the docs promise.

mod compact;
mod forms;
mod integers;
mod shares;
mod tiles;

use super::{LinearProduct, LinearScratch, LinearTask, LinearTasks, SharedOut, Worker};
use crate::cpu::isa::Isa;
use crate::cpu::pack::{PackTarget, PackedLinear, serially};
use crate::cpu::simd::exp::exp;
use crate::dtype::{ComputeDtype, WeightFormat};
use crate::k_order::Packing;
use crate::ops::Epilogue;
use crate::weight::WeightSource;
use half::bf16;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::num::NonZero;
use std::ops::Range;

/// Whole in 24 and 67 values, and in blocks of 256.
const F8E4M3: WeightFormat = WeightFormat::F8E4M3 {
    scale_len: NonZero::new(24).unwrap(),
};

pub(in crate::cpu) const FORMATS: [WeightFormat; 10] = [
    WeightFormat::F32,
    WeightFormat::F16,
    WeightFormat::BF16,
    F8E4M3,
    WeightFormat::Q8_0,
    WeightFormat::Q4_0,
    WeightFormat::Q4_1,
    WeightFormat::Q4K,
    WeightFormat::Q6K,
    WeightFormat::Mxfp4,
];

/// A stored `n × k` matrix with its values.
pub(in crate::cpu) struct Matrix {
    format: WeightFormat,
    n: usize,
    k: usize,
    bytes: Vec<u8>,
    scales: Vec<f32>,
    pub(in crate::cpu) values: Vec<f32>,
}

/// Whether activations become integers of sixteen bits.
pub(in crate::cpu) fn rounds_activations(format: WeightFormat) -> bool {
    format.block_len() > 1 && format != WeightFormat::Mxfp4
}

impl Matrix {
    /// Random codes, and random scales of a few percent.
    /// By itself, as one chain over k.
    fn packed(&self) -> PackedLinear {
        let packed = PackedLinear::pack(
            &[self.source()],
            Packing::JOINED,
            PackTarget::any(ComputeDtype::F32),
            &serially,
        );
        packed.expect("a matrix that fits")
    }

    pub(in crate::cpu) fn mk(format: WeightFormat, n: usize, k: usize, rng: &mut StdRng) -> Self {
        let mut bytes = vec![0; n * format.row_bytes(k).expect("whole blocks")];
        rng.fill(&mut bytes[..]);
        let halves_at: &[usize] = match format {
            WeightFormat::F32
            | WeightFormat::F16
            | WeightFormat::BF16
            | WeightFormat::F8E4M3 { .. }
            | WeightFormat::Mxfp4 => &[],
            WeightFormat::Q8_0 | WeightFormat::Q4_0 => &[0],
            WeightFormat::Q4_1 | WeightFormat::Q4K => &[0, 2],
            WeightFormat::Q6K => &[208],
        };
        for block in bytes.chunks_exact_mut(format.block_bytes()) {
            let mut small = || rng.random_range(-0.1_f32..0.1);
            match format {
                WeightFormat::F32 => block.copy_from_slice(&small().to_le_bytes()),
                WeightFormat::F16 => {
                    block.copy_from_slice(&half::f16::from_f32(small()).to_le_bytes());
                }
                // Without the exponent's first bit: numbers below 2.
                WeightFormat::F8E4M3 { .. } => block[0] &= 0xbf,
                WeightFormat::Mxfp4 => block[0] = 110 + block[0] % 17,
                WeightFormat::BF16 => block.copy_from_slice(&bf16::from_f32(small()).to_le_bytes()),
                WeightFormat::Q8_0
                | WeightFormat::Q4_0
                | WeightFormat::Q4_1
                | WeightFormat::Q4K
                | WeightFormat::Q6K => {
                    for at in halves_at {
                        let half = half::f16::from_f32(small()).to_le_bytes();
                        block[*at..at + 2].copy_from_slice(&half);
                    }
                }
            }
        }
        let scales = mk_values(n * format.scales_per_row(k), rng);
        let mut matrix = Self {
            format,
            n,
            k,
            bytes,
            scales,
            values: Vec::new(),
        };
        let mut values = vec![0.0; n * k];
        let rows = values.chunks_exact_mut(k).enumerate();
        rows.for_each(|(row, out)| matrix.source().row(row).expand(out));
        matrix.values = values;
        matrix
    }

    pub(in crate::cpu) fn source(&self) -> WeightSource<'_> {
        WeightSource {
            name: "w",
            format: self.format,
            n: self.n,
            k: self.k,
            bytes: &self.bytes,
            scales: &self.scales,
        }
    }

    /// The documented chain from 0: fma over ascending k, or over groups of integers.
    fn dot(&self, row: usize, x: &[f32]) -> f32 {
        self.dot_of(row, x, &(0..self.k))
    }

    /// The same over some k.
    fn dot_of(&self, row: usize, x: &[f32], ks: &Range<usize>) -> f32 {
        if rounds_activations(self.format) {
            return integers::dot(&self.source().row(row), x, ks);
        }
        let weights = &self.values[row * self.k..][ks.clone()];
        weights
            .iter()
            .zip(&x[ks.clone()])
            .fold(0.0, |sum, (w, x)| x.mul_add(*w, sum))
    }
}

pub(in crate::cpu) fn mk_values(len: usize, rng: &mut StdRng) -> Vec<f32> {
    (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// The whole product by one thread.
fn run_with(
    weight: &PackedLinear,
    x: &[f32],
    rows: usize,
    bias: Option<&[f32]>,
    epilogue: Epilogue,
    isa: Isa,
) -> Vec<f32> {
    let mut out = vec![0.25; rows * weight.out_len()];
    let product = LinearProduct {
        weight,
        x,
        x_stride: weight.k(),
        x_rows: None,
        rows,
        bias,
        epilogue,
        out: SharedOut::new(&mut out, weight.out_len()),
        isa,
    };
    let tasks = product.tasks(1);
    for i in 0..tasks.len() {
        // SAFETY: one at a time.
        unsafe { product.run_task(&tasks.get(i), &mut LinearScratch::new()) };
    }
    out
}

/// The whole product, in the tasks of `threads` threads, last task first.
fn run(
    weight: &PackedLinear,
    x: &[f32],
    rows: usize,
    epilogue: Epilogue,
    isa: Isa,
    threads: usize,
) -> Vec<f32> {
    let mut out = vec![0.25; rows * weight.out_len()];
    let product = LinearProduct {
        weight,
        x,
        x_stride: weight.k(),
        x_rows: None,
        rows,
        bias: None,
        epilogue,
        out: SharedOut::new(&mut out, weight.out_len()),
        isa,
    };
    let tasks = product.tasks(threads);
    let mut scratch = LinearScratch::new();
    for i in (0..tasks.len()).rev() {
        // SAFETY: one at a time.
        unsafe { product.run_task(&tasks.get(i), &mut scratch) };
    }
    out
}

fn assert_same_bits(what: &str, ours: &[f32], expected: &[f32]) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (i, (y, expected)) in ours.iter().zip(expected).enumerate() {
        assert_eq!(
            y.to_bits(),
            expected.to_bits(),
            "{what}: [{i}] is {y:e}, not {expected:e}"
        );
    }
}

/// Random matrices whose n and k are ragged where the format allows it.
fn any_case() -> impl Strategy<Value = (WeightFormat, usize, usize, usize, usize, u64)> {
    let rows = prop_oneof![1..16_usize, 16..60_usize, 235..260_usize];
    (
        0..FORMATS.len(),
        1..100_usize,
        1..90_usize,
        rows,
        1..4_usize,
        any::<u64>(),
    )
        .prop_map(|(format, n, k, rows, threads, seed)| {
            let format = FORMATS[format];
            let k = match format.block_len() {
                1 => k,
                32 => k.div_ceil(24) * 32,
                block_len => k.div_ceil(60) * block_len,
            };
            (format, n, k, rows, threads, seed)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn every_output_is_one_chain_over_k((format, n, k, rows, threads, seed) in any_case()) {
        let mut rng = StdRng::seed_from_u64(seed);
        let matrix = Matrix::mk(format, n, k, &mut rng);
        let x = mk_values(rows * k, &mut rng);
        let weight = matrix.packed();
        let expected: Vec<f32> = x
            .chunks_exact(k)
            .flat_map(|x| (0..n).map(|row| matrix.dot(row, x)).collect::<Vec<_>>())
            .collect();
        for isa in isas() {
            let y = run(&weight, &x, rows, Epilogue::Store, isa, threads);
            assert_same_bits(&format!("{isa:?} {format:?}"), &y, &expected);
        }
    }

    #[test]
    fn swiglu_is_bit_equal_in_every_instruction_set(
        (format, n, k, rows, threads, seed) in any_case(),
    ) {
        let mut rng = StdRng::seed_from_u64(seed);
        let gate = Matrix::mk(format, n, k, &mut rng);
        let up = Matrix::mk(format, n, k, &mut rng);
        let x = mk_values(rows * k, &mut rng);
        let parts = [gate.source(), up.source()];
        let weight = PackedLinear::pack(&parts, Packing::Interleaved, PackTarget::any(ComputeDtype::F32), &serially)
            .expect("matrices that fit");
        let expected: Vec<f32> = x
            .chunks_exact(k)
            .flat_map(|x| {
                let swiglu = |row| {
                    let (gate, up) = (gate.dot(row, x), up.dot(row, x));
                    gate / (1.0 + exp(-gate)) * up
                };
                (0..n).map(swiglu).collect::<Vec<_>>()
            })
            .collect();
        for isa in isas() {
            let y = run(&weight, &x, rows, Epilogue::SwiGlu, isa, threads);
            assert_same_bits(&format!("{isa:?} {format:?}"), &y, &expected);
        }
    }

    #[test]
    fn tasks_cover_a_product_once(n in 0..5000_usize, rows in 0..600_usize, threads in 1..9_usize) {
        let bytes = vec![0; n * 2];
        let source = WeightSource { name: "w", format: WeightFormat::F16, n, k: 1, bytes: &bytes, scales: &[] };
        let weight = PackedLinear::pack(&[source], Packing::JOINED, PackTarget::any(ComputeDtype::F32), &serially)
            .expect("a matrix that fits");
        let tasks = LinearTasks::new(&weight, rows, threads);
        let covered_by = |all: Vec<LinearTask>| {
            let mut covered = vec![0; rows * weight.block_count()];
            for LinearTask { rows, blocks, .. } in all {
                for row in rows {
                    blocks.clone().for_each(|block| covered[row * weight.block_count() + block] += 1);
                }
            }
            covered.iter().all(|times| *times == 1)
        };
        prop_assert!(covered_by((0..tasks.len()).map(|i| tasks.get(i)).collect()));
        let claims = (0..tasks.len()).map(|i| {
            let worker = Worker { index: i * i % threads, count: threads };
            tasks.claim(worker).expect("as many claims as tasks")
        });
        prop_assert!(covered_by(claims.collect()));
        let one_more = tasks.claim(Worker { index: 0, count: threads });
        prop_assert!(one_more.is_none());
    }
}

/// In bfloat16 too, where the order of sums is the instruction's own.
#[test]
fn a_row_is_bit_equal_alone_and_among_five_hundred() {
    let mut rng = StdRng::seed_from_u64(1);
    for format in FORMATS {
        let k = if format.block_len() == 1 { 67 } else { 256 };
        let matrix = Matrix::mk(format, 75, k, &mut rng);
        let x = mk_values(512 * k, &mut rng);
        for dtype in [ComputeDtype::F32, ComputeDtype::BF16] {
            let weight = PackedLinear::pack(
                &[matrix.source()],
                Packing::JOINED,
                PackTarget::any(dtype),
                &serially,
            )
            .expect("a matrix that fits");
            for isa in isas() {
                let together = run(&weight, &x, 512, Epilogue::Store, isa, 2);
                for (row, expected) in together.chunks_exact(75).enumerate().step_by(37) {
                    let alone = run(&weight, &x[row * k..][..k], 1, Epilogue::Store, isa, 1);
                    assert_same_bits(&format!("{isa:?} {format:?} {dtype:?}"), &alone, expected);
                }
            }
        }
    }
}

#[test]
fn bfloat16_rounds_activations_and_weights_and_nothing_else() {
    let mut rng = StdRng::seed_from_u64(2);
    let matrix = Matrix::mk(WeightFormat::F32, 40, 333, &mut rng);
    let x = mk_values(7 * 333, &mut rng);
    let rounded = |v: &f32| f64::from(bf16::from_f32(*v).to_f32());
    let weight = PackedLinear::pack(
        &[matrix.source()],
        Packing::JOINED,
        PackTarget::any(ComputeDtype::BF16),
        &serially,
    )
    .expect("a matrix that fits");
    for isa in isas() {
        let y = run(&weight, &x, 7, Epilogue::Store, isa, 2);
        for (i, y) in y.iter().enumerate() {
            let x = x[i / 40 * 333..][..333].iter().map(rounded);
            let w = matrix.values[i % 40 * 333..][..333].iter().map(rounded);
            let (mut truth, mut size) = (0.0, 0.0);
            x.zip(w).for_each(|(x, w)| {
                truth += x * w;
                size += (x * w).abs();
            });
            // A sum of 333 terms in f32: an error of 2⁻²⁴ of each partial sum at most.
            let bound = 333.0 * size * f64::from(f32::EPSILON) / 2.0;
            assert!(
                (f64::from(*y) - truth).abs() <= bound,
                "{isa:?}: {y:e}, not {truth:e}"
            );
        }
    }
}
