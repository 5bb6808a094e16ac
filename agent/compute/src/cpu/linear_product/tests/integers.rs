//! Products of integer codes: the chain that the docs promise, and what it is off by.

use super::{FORMATS, Matrix, assert_same_bits, isas, mk_values, rounds_activations, run};
use crate::cpu::pack::PackedLinear;
use crate::dtype::WeightFormat;
use crate::ops::Epilogue;
use crate::quant;
use crate::weight::StoredRow;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::ops::Range;

const K: usize = 512;
const N: usize = 40;

/// Thirty-two activations as integers, with their scale.
fn quantized(x: &[f32]) -> (f32, Vec<f64>) {
    let greatest = x.iter().fold(0.0_f32, |greatest, x| greatest.max(x.abs()));
    let integer = |x: &f32| (f64::from(*x) * f64::from(32767.0 / greatest)).round_ties_even();
    (greatest * (1.0 / 32767.0), x.iter().map(integer).collect())
}

/// A fma for each scale of a weight, by the exact sum of the products of integers, and one for each minimum.
#[allow(
    clippy::cast_possible_truncation,
    reason = "rounded to f32, as documented"
)]
pub(super) fn dot(row: &StoredRow<'_>, x: &[f32], ks: &Range<usize>) -> f32 {
    let format = row.format;
    let sub_len = quant::sub_block_len(format);
    let mut codes = vec![0; format.block_len()];
    let mut sum = 0.0_f32;
    let blocks = row.bytes.chunks_exact(format.block_bytes());
    for (i, (block, x)) in blocks.zip(x.chunks_exact(format.block_len())).enumerate() {
        quant::read_codes(format, block, &mut codes);
        for (group, (x, codes)) in x.chunks_exact(32).zip(codes.chunks_exact(32)).enumerate() {
            if !ks.contains(&(i * format.block_len() + group * 32)) {
                continue;
            }
            let (scale, integers) = quantized(x);
            let subs = integers
                .chunks_exact(sub_len)
                .zip(codes.chunks_exact(sub_len));
            for (sub, (integers, codes)) in subs.enumerate() {
                let sub = group * (32 / sub_len) + sub;
                let (weight_scale, minimum) = quant::scale_and_offset(format, block, sub);
                let value = |code: &u8| f64::from(quant::code_value(format, *code));
                let products = codes.iter().zip(integers).map(|(code, x)| value(code) * x);
                sum = (weight_scale * scale).mul_add(products.sum::<f64>() as f32, sum);
                if matches!(format, WeightFormat::Q4_1 | WeightFormat::Q4K) {
                    let scaled = integers.iter().sum::<f64>() as f32 * scale;
                    sum = minimum.mul_add(scaled, sum);
                }
            }
        }
    }
    sum
}

fn formats_with_codes() -> impl Iterator<Item = WeightFormat> {
    FORMATS
        .into_iter()
        .filter(|format| rounds_activations(*format))
}

fn pack(matrix: &Matrix) -> PackedLinear {
    matrix.packed()
}

#[test]
fn an_activation_is_off_by_two_to_the_minus_16_of_the_greatest_beside_it() {
    let mut rng = StdRng::seed_from_u64(5);
    for format in formats_with_codes() {
        let matrix = Matrix::mk(format, N, K, &mut rng);
        let mut x = mk_values(3 * K, &mut rng);
        // Some are far larger than others, in groups of their own and among small ones.
        x.iter_mut().step_by(37).for_each(|x| *x *= 1000.0);
        let y = run(
            &pack(&matrix),
            &x,
            3,
            Epilogue::Store,
            isas().last().expect("one"),
            1,
        );
        for (i, y) in y.iter().enumerate() {
            let x = x[i / N * K..][..K].chunks_exact(32);
            let w = matrix.values[i % N * K..][..K].chunks_exact(32);
            let (mut truth, mut bound) = (0.0, 0.0);
            for (x, w) in x.zip(w) {
                let greatest = f64::from(x.iter().fold(0.0_f32, |g, x| g.max(x.abs())));
                for (x, w) in x.iter().zip(w).map(|(x, w)| (f64::from(*x), f64::from(*w))) {
                    truth += x * w;
                    // Of integers, and of a few sums in f32 for each group.
                    bound += w.abs() * greatest * 2f64.powi(-16) * 1.001;
                    bound += 2f64.powi(-19) * (x * w).abs();
                }
            }
            let off = (f64::from(*y) - truth).abs();
            assert!(
                off <= bound,
                "{format:?}: {y:e}, not {truth:e}: off by {off:e} of {bound:e}"
            );
        }
    }
}

/// The greatest codes, times the greatest integers of one sign.
#[test]
fn sums_of_the_greatest_products_do_not_overflow() {
    for byte in [0x00, 0x7f, 0x80, 0xff] {
        for format in formats_with_codes() {
            let mut matrix = Matrix::mk(format, N, K, &mut StdRng::seed_from_u64(6));
            let scales = match format {
                WeightFormat::Q4_1 | WeightFormat::Q4K => 0..4,
                WeightFormat::Q6K => 208..210,
                WeightFormat::Q8_0 | WeightFormat::Q4_0 => 0..2,
                WeightFormat::F32
                | WeightFormat::F16
                | WeightFormat::BF16
                | WeightFormat::Mxfp4
                | WeightFormat::F8E4M3 { .. } => 0..0,
            };
            for block in matrix.bytes.chunks_exact_mut(format.block_bytes()) {
                for (at, b) in block.iter_mut().enumerate() {
                    *b = if scales.contains(&at) { 0x2c } else { byte };
                }
            }
            let weight = pack(&matrix);
            for x in [3.0, -3.0] {
                let x = [x; 2 * K];
                let expected = matrix.dot(0, &x[..K]);
                for isa in isas() {
                    let y = run(&weight, &x, 2, Epilogue::Store, isa, 1);
                    assert_same_bits(&format!("{isa:?} {format:?}"), &y, &[expected; 2 * N]);
                }
            }
        }
    }
}

#[test]
fn what_is_no_number_makes_its_row_so_and_no_other() {
    let mut rng = StdRng::seed_from_u64(7);
    for format in formats_with_codes() {
        let matrix = Matrix::mk(format, N, K, &mut rng);
        let weight = pack(&matrix);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = mk_values(3 * K, &mut rng);
            x[K + 40] = bad;
            for isa in isas() {
                let y = run(&weight, &x, 3, Epilogue::Store, isa, 1);
                let rows = y.chunks_exact(N).map(|row| row.iter().all(|y| y.is_nan()));
                assert_eq!(
                    rows.collect::<Vec<_>>(),
                    [false, true, false],
                    "{isa:?} {format:?}"
                );
            }
        }
    }
}

#[test]
fn activations_that_are_next_to_nothing_are_zeros() {
    let matrix = Matrix::mk(WeightFormat::Q4_1, N, K, &mut StdRng::seed_from_u64(8));
    let weight = pack(&matrix);
    for x in [0.0, -0.0, f32::from_bits(1), f32::MIN_POSITIVE] {
        for isa in isas() {
            let y = run(&weight, &[x; K], 1, Epilogue::Store, isa, 1);
            assert!(y.iter().all(|y| *y == 0.0), "{isa:?}: {x:e}");
        }
    }
}
