//! Sixteen lanes: AVX-512 F, BW, DQ, VL.
//!
//! Codes become f32 by `vpermps` from a table, which reads only the low four bits of each index:
//! one instruction instead of a mask and a conversion. (Putting them into the mantissa of a power
//! of two by `vpternlogd` takes a third longer on Zen 4, where it competes with multiply-adds.)

use super::Simd;
use crate::cpu::kernels::exp::exp_avx512;
use std::arch::x86_64::{
    __m512, __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm512_add_ps, _mm512_and_si512,
    _mm512_castsi512_ps, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32,
    _mm512_cvtph_ps, _mm512_div_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mul_ps, _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32,
    _mm512_srli_epi32, _mm512_storeu_ps,
};

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

static NIBBLE: [f32; 16] = [
    0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
];
static NIBBLE_LESS_8: [f32; 16] = [
    -8., -7., -6., -5., -4., -3., -2., -1., 0., 1., 2., 3., 4., 5., 6., 7.,
];
/// The two bits above a nibble, less 32; the index's other two bits do not matter.
static HIGH_LESS_32: [f32; 16] = [
    -32., -16., 0., 16., -32., -16., 0., 16., -32., -16., 0., 16., -32., -16., 0., 16.,
];

#[inline(always)]
unsafe fn look_up(words: __m512i, table: &[f32; 16]) -> Avx512 {
    // SAFETY: the trait's contract; the table has sixteen elements.
    unsafe {
        Avx512(_mm512_permutexvar_ps(
            words,
            _mm512_loadu_ps(table.as_ptr()),
        ))
    }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    type Words = __m512i;

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
    unsafe fn load_f16(at: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i8(at: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bytes = _mm_loadu_si128(at.cast());
            Self(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(at: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bytes = _mm_loadu_si128(at.cast());
            Self(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)))
        }
    }

    #[inline(always)]
    unsafe fn load_words(at: *const u8) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }
    #[inline(always)]
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_srli_epi32::<BITS>(words) }
    }
    #[inline(always)]
    unsafe fn nibble<const AT: u32>(words: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe { look_up(_mm512_srli_epi32::<AT>(words), &NIBBLE) }
    }
    #[inline(always)]
    unsafe fn nibble_less_8<const AT: u32>(words: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe { look_up(_mm512_srli_epi32::<AT>(words), &NIBBLE_LESS_8) }
    }
    #[inline(always)]
    unsafe fn six_bits_less_32(low: Self::Words, high: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe { look_up(low, &NIBBLE).add(look_up(high, &HIGH_LESS_32)) }
    }
    #[inline(always)]
    unsafe fn bf16_low(words: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))) }
    }
    #[inline(always)]
    unsafe fn bf16_high(words: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let high = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            Self(_mm512_castsi512_ps(_mm512_and_si512(words, high)))
        }
    }
}
