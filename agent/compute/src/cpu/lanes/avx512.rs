//! Sixteen lanes in one register: AVX-512 F, BW, DQ, VL.

use super::{LANES, Lanes};
use crate::cpu::kernels::exp::exp_avx512;
use std::arch::x86_64::{
    __m256i, __m512, _mm256_loadu_si256, _mm512_add_ps, _mm512_castsi512_ps, _mm512_cvtepu16_epi32,
    _mm512_cvtph_ps, _mm512_div_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_mul_ps,
    _mm512_set1_ps, _mm512_shuffle_f32x4, _mm512_shuffle_ps, _mm512_slli_epi32, _mm512_storeu_ps,
    _mm512_sub_ps, _mm512_unpackhi_ps, _mm512_unpacklo_ps,
};

#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

impl Lanes for Avx512 {
    const MANY_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_loadu_ps(at)) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(at.cast::<__m256i>()))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast::<__m256i>()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { _mm512_storeu_ps(at, self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_add_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_sub_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_mul_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_div_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_max_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(exp_avx512(self.0)) }
    }
    #[inline(always)]
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        // SAFETY: the trait's contract.
        unsafe {
            // 4×4 transposes within each 128-bit quarter: t[4g + c] has column c of rows 4g..4g+4.
            let mut t = rows;
            for g in 0..4 {
                let [r0, r1] = [rows[4 * g].0, rows[4 * g + 1].0];
                let [r2, r3] = [rows[4 * g + 2].0, rows[4 * g + 3].0];
                let (lo01, hi01) = (_mm512_unpacklo_ps(r0, r1), _mm512_unpackhi_ps(r0, r1));
                let (lo23, hi23) = (_mm512_unpacklo_ps(r2, r3), _mm512_unpackhi_ps(r2, r3));
                t[4 * g] = Self(_mm512_shuffle_ps::<0x44>(lo01, lo23));
                t[4 * g + 1] = Self(_mm512_shuffle_ps::<0xEE>(lo01, lo23));
                t[4 * g + 2] = Self(_mm512_shuffle_ps::<0x44>(hi01, hi23));
                t[4 * g + 3] = Self(_mm512_shuffle_ps::<0xEE>(hi01, hi23));
            }
            // Then the quarters: column 4q + c gathers quarter q of t[c], t[4 + c], t[8 + c], t[12 + c].
            let mut out = t;
            for c in 0..4 {
                let [g0, g1, g2, g3] = [t[c].0, t[4 + c].0, t[8 + c].0, t[12 + c].0];
                let a = _mm512_shuffle_f32x4::<0x88>(g0, g1);
                let b = _mm512_shuffle_f32x4::<0xDD>(g0, g1);
                let d = _mm512_shuffle_f32x4::<0x88>(g2, g3);
                let e = _mm512_shuffle_f32x4::<0xDD>(g2, g3);
                out[c] = Self(_mm512_shuffle_f32x4::<0x88>(a, d));
                out[8 + c] = Self(_mm512_shuffle_f32x4::<0xDD>(a, d));
                out[4 + c] = Self(_mm512_shuffle_f32x4::<0x88>(b, e));
                out[12 + c] = Self(_mm512_shuffle_f32x4::<0xDD>(b, e));
            }
            out
        }
    }
}
