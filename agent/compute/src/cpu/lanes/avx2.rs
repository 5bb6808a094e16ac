//! Sixteen lanes in two registers: AVX2, FMA, F16C.

use super::{LANES, Lanes};
use crate::cpu::kernels::exp::exp_avx2;
use std::arch::x86_64::{
    __m128i, __m256, _mm_loadu_si128, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepu16_epi32,
    _mm256_cvtph_ps, _mm256_div_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_mul_ps,
    _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_shuffle_ps, _mm256_slli_epi32, _mm256_storeu_ps,
    _mm256_sub_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

/// Transposes eight vectors of eight.
#[inline(always)]
unsafe fn transpose_8(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the trait's contract.
    unsafe {
        let mut t = r;
        for g in 0..2 {
            let [r0, r1, r2, r3] = [r[4 * g], r[4 * g + 1], r[4 * g + 2], r[4 * g + 3]];
            let (lo01, hi01) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
            let (lo23, hi23) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
            t[4 * g] = _mm256_shuffle_ps::<0x44>(lo01, lo23);
            t[4 * g + 1] = _mm256_shuffle_ps::<0xEE>(lo01, lo23);
            t[4 * g + 2] = _mm256_shuffle_ps::<0x44>(hi01, hi23);
            t[4 * g + 3] = _mm256_shuffle_ps::<0xEE>(hi01, hi23);
        }
        let mut out = t;
        for c in 0..4 {
            out[c] = _mm256_permute2f128_ps::<0x20>(t[c], t[4 + c]);
            out[4 + c] = _mm256_permute2f128_ps::<0x31>(t[c], t[4 + c]);
        }
        out
    }
}

impl Lanes for Avx2 {
    const MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm256_cvtph_ps(_mm_loadu_si128(at.cast::<__m128i>()));
            Self(
                low,
                _mm256_cvtph_ps(_mm_loadu_si128(at.add(8).cast::<__m128i>())),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast::<__m128i>()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.add(8).cast::<__m128i>()));
            let (low, high) = (_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high));
            Self(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe {
            _mm256_storeu_ps(at, self.0);
            _mm256_storeu_ps(at.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_add_ps(self.0, b.0), _mm256_add_ps(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_sub_ps(self.0, b.0), _mm256_sub_ps(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_mul_ps(self.0, b.0), _mm256_mul_ps(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_div_ps(self.0, b.0), _mm256_div_ps(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_max_ps(self.0, b.0), _mm256_max_ps(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(
                _mm256_fmadd_ps(self.0, b.0, c.0),
                _mm256_fmadd_ps(self.1, b.1, c.1),
            )
        }
    }
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(exp_avx2(self.0), exp_avx2(self.1)) }
    }
    #[inline(always)]
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        // SAFETY: the trait's contract.
        unsafe {
            let zero = _mm256_set1_ps(0.0);
            let (mut left, mut right) = ([zero; LANES], [zero; LANES]);
            for (i, row) in rows.into_iter().enumerate() {
                (left[i], right[i]) = (row.0, row.1);
            }
            let (left, right) = (left.as_chunks().0, right.as_chunks().0);
            let (top_left, low_left) = (transpose_8(left[0]), transpose_8(left[1]));
            let (top_right, low_right) = (transpose_8(right[0]), transpose_8(right[1]));
            let mut out = rows;
            for i in 0..8 {
                out[i] = Self(top_left[i], low_left[i]);
                out[8 + i] = Self(top_right[i], low_right[i]);
            }
            out
        }
    }
}
