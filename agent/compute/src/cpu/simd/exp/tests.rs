//! The bits of all three forms, and their distance from the truth.

use super::{exp, exp_avx2, exp_avx512};
use crate::cpu::isa::Isa;
use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps, _mm512_loadu_ps, _mm512_storeu_ps};

/// Every 4,001st bit pattern, the edges of the range, and what is not a number.
fn inputs() -> Vec<f32> {
    let mut xs: Vec<f32> = (0..=u32::MAX).step_by(4001).map(f32::from_bits).collect();
    xs.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    xs.extend([-87.336_55, -87.336_54, -87.336_53, 88.722_83, 88.722_84]);
    xs.extend((0..40_000u16).map(|i| f32::from(i) * 0.01 - 200.0));
    xs.truncate(xs.len() / 16 * 16);
    xs
}

fn assert_same_bits(x: f32, y: f32) {
    let expected = exp(x);
    assert!(
        expected.to_bits() == y.to_bits() || (expected.is_nan() && y.is_nan()),
        "exp({x:e}): {expected:e} and {y:e}"
    );
}

#[test]
fn the_scalar_form_is_within_one_and_a_half_ulp() {
    for x in inputs().into_iter().filter(|x| (-87.3..88.7).contains(x)) {
        let truth = f64::from(x).exp();
        let y = exp(x);
        let ulp = f64::from(f32::from_bits(y.to_bits() + 1)) - f64::from(y);
        assert!(
            (f64::from(y) - truth).abs() <= 1.5 * ulp,
            "exp({x:e}) = {y:e}, not {truth:e}"
        );
    }
}

#[test]
fn the_ends_are_zero_infinite_and_nan() {
    assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
    assert_eq!(exp(-88.0).to_bits(), 0);
    assert_eq!(exp(0.0).to_bits(), 1.0_f32.to_bits());
    assert!(exp(f32::INFINITY).is_infinite());
    assert!(exp(f32::NAN).is_nan());
}

#[test]
fn eight_lanes_are_bit_equal_to_one() {
    if !Isa::Avx2.is_available() {
        return;
    }
    for xs in inputs().as_chunks::<8>().0 {
        let mut ys = [0.0_f32; 8];
        // SAFETY: AVX2 and FMA were found; both arrays have eight elements.
        unsafe { _mm256_storeu_ps(ys.as_mut_ptr(), exp_avx2(_mm256_loadu_ps(xs.as_ptr()))) };
        xs.iter().zip(ys).for_each(|(x, y)| assert_same_bits(*x, y));
    }
}

#[test]
fn sixteen_lanes_are_bit_equal_to_one() {
    if !Isa::Avx512.is_available() {
        return;
    }
    for xs in inputs().as_chunks::<16>().0 {
        let mut ys = [0.0_f32; 16];
        // SAFETY: AVX-512 F was found; both arrays have sixteen elements.
        unsafe { _mm512_storeu_ps(ys.as_mut_ptr(), exp_avx512(_mm512_loadu_ps(xs.as_ptr()))) };
        xs.iter().zip(ys).for_each(|(x, y)| assert_same_bits(*x, y));
    }
}
