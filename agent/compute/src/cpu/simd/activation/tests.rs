//! The bits of all instruction sets, and their distance from the truth.

use super::{at_least, at_most, gelu_tanh, sigmoid, soft_cap, softplus, tanh};
use crate::cpu::backend::tests::isas;
use crate::cpu::isa::Isa;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};

/// All functions of sixteen values each.
struct Activations<'a>(&'a [f32]);

impl Kernel for Activations<'_> {
    type Output = Vec<[f32; 7]>;

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) -> Vec<[f32; 7]> {
        let mut out = Vec::new();
        for chunk in self.0.as_chunks::<LANES>().0 {
            // SAFETY: the instruction set by the caller; a chunk has sixteen values.
            let lanes = unsafe {
                let x = V::load(chunk.as_ptr());
                [
                    tanh(x).to_array(),
                    sigmoid(x).to_array(),
                    gelu_tanh(x).to_array(),
                    soft_cap(x, 30.0).to_array(),
                    at_most(x, 2.0).to_array(),
                    at_least(x, -2.0).to_array(),
                    softplus(x).to_array(),
                ]
            };
            out.extend((0..LANES).map(|i| lanes.each_ref().map(|values| values[i])));
        }
        out
    }
}

fn run(isa: Isa, xs: &[f32]) -> Vec<[f32; 7]> {
    // SAFETY: the kernel has no needs of its own.
    unsafe { isa.dispatch(Activations(xs)) }
}

fn inputs() -> Vec<f32> {
    let mut xs: Vec<f32> = (0..40_000u16)
        .map(|i| f32::from(i) * 0.001 - 20.0)
        .collect();
    xs.extend((0..=u32::MAX).step_by(400_009).map(f32::from_bits));
    xs.extend([0.0, -0.0, 0.55, -0.55, f32::INFINITY, f32::NEG_INFINITY]);
    xs.truncate(xs.len() / LANES * LANES);
    xs
}

#[test]
fn results_are_near_the_truth() {
    let xs = inputs();
    for (x, y) in xs.iter().zip(run(Isa::Scalar, &xs)) {
        let x = f64::from(*x);
        if x.is_nan() {
            assert!(y.iter().all(|y| y.is_nan()), "{y:?} of NaN");
            continue;
        }
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        let expected = [
            x.tanh(),
            1.0 / (1.0 + (-x).exp()),
            0.5 * x * (1.0 + inner.tanh()),
            30.0 * (x / 30.0).tanh(),
            x.min(2.0),
            x.max(-2.0),
            x.max(0.0) + (-x.abs()).exp().ln_1p(),
        ];
        if x.abs() > 1e6 {
            // Gelu of a large negative number is −∞ · 0.
            continue;
        }
        for (y, expected) in y.into_iter().zip(expected) {
            let off = (f64::from(y) - expected).abs() / expected.abs().max(1.0);
            assert!(off < 3e-7, "{y:e} of {x:e}, not {expected:e}");
        }
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let xs = inputs();
    let scalar = run(Isa::Scalar, &xs);
    for isa in isas() {
        for ((x, a), b) in xs.iter().zip(&scalar).zip(run(isa, &xs)) {
            let same = a
                .iter()
                .zip(b)
                .all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
            assert!(same, "{} of {x:e}: {b:?}, not {a:?}", isa.name());
        }
    }
}

#[test]
fn softplus_is_near_itself_where_it_is_small_and_the_number_where_that_is_large() {
    let xs: Vec<f32> = (0..1600u16).map(|i| f32::from(i) * 0.07 - 80.0).collect();
    for (x, y) in xs.iter().zip(run(Isa::Scalar, &xs)) {
        let expected = f64::from(*x).exp().ln_1p();
        let off = (f64::from(y[6]) - expected).abs() / expected;
        assert!(off < 3e-7, "{:e} of {x:e}, not {expected:e}", y[6]);
        assert!(*x <= 20.0 || y[6] == *x, "{:e} of {x:e}", y[6]);
    }
}
