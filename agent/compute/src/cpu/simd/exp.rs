//! `exp` for f32 vectors: one sequence of correctly rounded operations, so that AVX-512, AVX2 and
//! scalar results are bit-equal. Within 1.5 ulp of the true value in the normal range.
//!
//! `x = n·ln 2 + r` with `n` the nearest integer, `eʳ = 1 + r + r²·p(r)`, and `2ⁿ` is put into the
//! exponent bits. Below `MIN` (results under the smallest normal number) the result is 0, which is
//! what a masked score needs; above `MAX` it is infinite; NaN stays NaN. The coefficients of `p`
//! are our own Chebyshev fit of `(eʳ − 1 − r)/r²` on `|r| ≤ ln 2 / 2`.

use std::arch::x86_64::{
    __m256, __m512, _CMP_GT_OQ, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_NO_EXC,
    _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32, _mm256_add_ps, _mm256_andnot_ps, _mm256_blendv_ps,
    _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtps_epi32, _mm256_fmadd_ps, _mm256_mul_ps,
    _mm256_round_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_sub_epi32, _mm512_add_ps, _mm512_cmp_ps_mask, _mm512_fmadd_ps, _mm512_mask_mov_ps,
    _mm512_maskz_scalef_ps, _mm512_mul_ps, _mm512_roundscale_ps, _mm512_set1_ps,
};

const MIN: f32 = -87.336_54;
const MAX: f32 = 88.722_83;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 with 12 bits cut off, so that `n · LN2_HIGH` is exact; the rest is in `LN2_LOW`.
const LN2_HIGH: f32 = 0.693_115_23;
const LN2_LOW: f32 = 3.194_618_3e-5;
/// `p`, highest power first.
const P: [f32; 6] = [
    1.989_933_4e-4,
    1.393_368_8e-3,
    8.333_298e-3,
    4.166_646_3e-2,
    0.166_666_67,
    0.5,
];

/// The portable form.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    if x < MIN {
        return 0.0;
    }
    if x > MAX {
        return f32::INFINITY;
    }
    if x.is_nan() {
        return x;
    }
    let n = (x * LOG2_E).round_ties_even();
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let p = P.iter().skip(1).fold(P[0], |p, c| p.mul_add(r, *c));
    let e = (p * r).mul_add(r, r) + 1.0;
    // 2ⁿ in two factors: n = 128 has no exponent of its own.
    #[allow(clippy::cast_possible_truncation, reason = "|n| ≤ 128")]
    let n = n as i32;
    let half = n >> 1;
    e * power_of_two(half) * power_of_two(n - half)
}

fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n + 127).cast_unsigned() << 23)
}

/// Eight lanes.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(crate) fn exp_avx2(x: __m256) -> __m256 {
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    let n = _mm256_round_ps::<NEAREST>(_mm256_mul_ps(x, _mm256_set1_ps(LOG2_E)));
    let r = _mm256_fmadd_ps(n, _mm256_set1_ps(-LN2_HIGH), x);
    let r = _mm256_fmadd_ps(n, _mm256_set1_ps(-LN2_LOW), r);
    let mut p = _mm256_set1_ps(P[0]);
    for c in &P[1..] {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(*c));
    }
    let e = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r);
    let e = _mm256_add_ps(e, _mm256_set1_ps(1.0));
    let n = _mm256_cvtps_epi32(n);
    let half = _mm256_srai_epi32::<1>(n);
    let bias = _mm256_set1_epi32(127);
    let factor = |n| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, bias)));
    let e = _mm256_mul_ps(e, factor(half));
    let e = _mm256_mul_ps(e, factor(_mm256_sub_epi32(n, half)));
    let e = _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(MIN)), e);
    let over = _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_set1_ps(MAX));
    let e = _mm256_blendv_ps(e, _mm256_set1_ps(f32::INFINITY), over);
    _mm256_blendv_ps(e, x, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x))
}

/// Sixteen lanes.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn exp_avx512(x: __m512) -> __m512 {
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    let n = _mm512_roundscale_ps::<NEAREST>(_mm512_mul_ps(x, _mm512_set1_ps(LOG2_E)));
    let r = _mm512_fmadd_ps(n, _mm512_set1_ps(-LN2_HIGH), x);
    let r = _mm512_fmadd_ps(n, _mm512_set1_ps(-LN2_LOW), r);
    let mut p = _mm512_set1_ps(P[0]);
    for c in &P[1..] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*c));
    }
    let e = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    let under = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_set1_ps(MIN));
    // Of NaN it makes NaN.
    let e = _mm512_maskz_scalef_ps(!under, _mm512_add_ps(e, _mm512_set1_ps(1.0)), n);
    let over = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_set1_ps(MAX));
    _mm512_mask_mov_ps(e, over, _mm512_set1_ps(f32::INFINITY))
}

#[cfg(test)]
mod tests;
