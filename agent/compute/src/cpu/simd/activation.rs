//! Functions between layers, each one sequence of correctly rounded operations, so that all
//! instruction sets give the same bits.
//!
//! # Safety
//! Every function needs a processor with the instruction set of `V`.

use super::Simd;

/// Below it, `tanh` is a polynomial: `1 − 2/(e²ˣ + 1)` would cancel.
const TANH_SMALL: f32 = 0.55;
/// `(tanh(x)/x − 1)/x²` in powers of x², highest first: our own interpolation at the Chebyshev nodes
/// of `[0, TANH_SMALL²]`, within 0.8 ulp of tanh.
const TANH: [f32; 5] = [
    -6.610_227_7e-3,
    2.130_938_9e-2,
    -5.390_943e-2,
    0.133_331_13,
    -0.333_333_3,
];
/// `(artanh(s)/s − 1)/s²` in powers of s², highest first: Taylor, whose rest is below 1e-8 for `s ≤ 1/3`.
const ARTANH: [f32; 7] = [
    1.0 / 15.0,
    1.0 / 13.0,
    1.0 / 11.0,
    1.0 / 9.0,
    1.0 / 7.0,
    1.0 / 5.0,
    1.0 / 3.0,
];
/// `√(2/π)`.
const GELU_SCALE: f32 = 0.797_884_6;
const GELU_CUBE: f32 = 0.044_715;

/// Within 1.5 ulp of 1; NaN stays NaN.
#[inline(always)]
pub(crate) unsafe fn tanh<V: Simd>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        let zero = V::splat(0.0);
        let size = x.max(zero.sub(x));
        let one = V::splat(1.0);
        let grown = size.add(size).exp().add(one);
        let large = one.sub(V::splat(2.0).div(grown));
        let large = x.select_below(zero, zero.sub(large), large);
        let square = x.mul(x);
        let mut series = V::splat(TANH[0]);
        for c in &TANH[1..] {
            series = series.fma(square, V::splat(*c));
        }
        let small = series.fma(x.mul(square), x);
        size.select_below(V::splat(TANH_SMALL), small, large)
    }
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) unsafe fn sigmoid<V: Simd>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        let one = V::splat(1.0);
        one.div(one.add(x.mul(V::splat(-1.0)).exp()))
    }
}

/// `ln(1 + eˣ)`, within 2e-7 of itself; `x` from about 17 on.
#[inline(always)]
pub(crate) unsafe fn softplus<V: Simd>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        // max(x, 0) + ln(1 + y) with y = e^−|x| and ln(1 + y) = 2·artanh(s), s = y / (2 + y) ≤ 1/3.
        let zero = V::splat(0.0);
        let y = zero.sub(x.max(zero.sub(x))).exp();
        let s = y.div(y.add(V::splat(2.0)));
        let square = s.mul(s);
        let mut series = V::splat(ARTANH[0]);
        for c in &ARTANH[1..] {
            series = series.fma(square, V::splat(*c));
        }
        let log = series.mul(square).fma(s, s);
        zero.max(x).add(log.add(log))
    }
}

/// `x / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) unsafe fn silu<V: Simd>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe { x.div(V::splat(1.0).add(x.mul(V::splat(-1.0)).exp())) }
}

/// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
#[inline(always)]
pub(crate) unsafe fn gelu_tanh<V: Simd>(x: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        let cube = x.mul(x).mul(x);
        let inner = cube.fma(V::splat(GELU_CUBE), x).mul(V::splat(GELU_SCALE));
        let half = x.mul(V::splat(0.5));
        half.mul(V::splat(1.0).add(tanh(inner)))
    }
}

/// `cap · tanh(x / cap)`.
#[inline(always)]
pub(crate) unsafe fn soft_cap<V: Simd>(x: V, cap: f32) -> V {
    // SAFETY: the caller's.
    unsafe {
        let cap = V::splat(cap);
        tanh(x.div(cap)).mul(cap)
    }
}

/// `x`, but at most `limit`; NaN stays NaN.
#[inline(always)]
pub(crate) unsafe fn at_most<V: Simd>(x: V, limit: f32) -> V {
    // SAFETY: the caller's.
    unsafe {
        let zero = V::splat(0.0);
        zero.sub(V::splat(-limit).max(zero.sub(x)))
    }
}

/// `x`, but at least `limit`; NaN stays NaN.
#[inline(always)]
pub(crate) unsafe fn at_least<V: Simd>(x: V, limit: f32) -> V {
    // SAFETY: the caller's.
    unsafe { V::splat(limit).max(x) }
}

#[cfg(test)]
mod tests;
