//! Eight lanes: AVX2, FMA, F16C.

use super::exp::exp_avx2;
use super::sixteen::Eight;
use super::{Codes, Simd};
use std::arch::x86_64::{
    __m256, __m256i, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_add_epi16,
    _mm_and_si128, _mm_cvtepi8_epi16, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128,
    _mm_or_si128, _mm_set1_epi16, _mm_slli_epi16, _mm_storeu_si128, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_si256, _mm256_blendv_epi8, _mm256_blendv_ps,
    _mm256_broadcastsi128_si256, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128,
    _mm256_cmp_ps, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_div_ps, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_max_ps, _mm256_mul_ps,
    _mm256_or_si256, _mm256_packus_epi32, _mm256_permute2f128_ps, _mm256_permute4x64_epi64,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_shuffle_epi8, _mm256_shuffle_ps, _mm256_sll_epi32,
    _mm256_slli_epi16, _mm256_slli_epi32, _mm256_srai_epi16, _mm256_srl_epi32, _mm256_srli_epi32,
    _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

impl Simd for Avx2 {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_loadu_ps(at)) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_cvtph_ps(_mm_loadu_si128(at.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)))
        }
    }
    #[inline(always)]
    unsafe fn even_bf16(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(
                _mm256_castps_si256(self.0),
            )))
        }
    }
    #[inline(always)]
    unsafe fn odd_bf16(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let high = _mm256_set1_epi32(!0xffff);
            Self(_mm256_castsi256_ps(_mm256_and_si256(
                _mm256_castps_si256(self.0),
                high,
            )))
        }
    }
    #[inline(always)]
    unsafe fn load_f8_part(at: *const u8) -> Self {
        // SAFETY: the trait's contract. As `e4m3::as_f16`, but that the sign is extended.
        unsafe {
            let codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(at.cast()));
            let moved = _mm_and_si128(
                _mm_slli_epi16::<7>(codes),
                _mm_set1_epi16(0xbf80_u16.cast_signed()),
            );
            let carried = _mm_add_epi16(moved, _mm_set1_epi16(0x80));
            let nans = _mm_and_si128(carried, _mm_set1_epi16(0x4000));
            Self(_mm256_cvtph_ps(_mm_or_si128(moved, nans)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { _mm256_storeu_ps(at, self.0) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm_storeu_si128(at.cast(), halves);
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u16) {
        // SAFETY: the trait's contract. Half of the last place is added, of two the one that keeps it even.
        unsafe {
            let (bits, one) = (_mm256_castps_si256(self.0), _mm256_set1_epi32(1));
            let is_odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), one);
            let half = _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
            let rounded = _mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, is_nan);
            let halves = _mm256_srli_epi32::<16>(rounded);
            let halves = _mm256_packus_epi32(halves, halves);
            let halves = _mm256_permute4x64_epi64::<0b10_00>(halves);
            _mm_storeu_si128(at.cast(), _mm256_castsi256_si128(halves));
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_add_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_sub_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_mul_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_div_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_max_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(exp_avx2(self.0)) }
    }
    #[inline(always)]
    unsafe fn select_below(self, bound: Self, less: Self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let is_below = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, bound.0);
            Self(_mm256_blendv_ps(other.0, less.0, is_below))
        }
    }
}

impl Codes for Avx2 {
    type Words = __m256i;

    #[inline(always)]
    unsafe fn load_i8(at: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bytes = _mm_loadl_epi64(at.cast());
            Self(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(at: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bytes = _mm_loadl_epi64(at.cast());
            Self(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)))
        }
    }

    #[inline(always)]
    unsafe fn load_words(at: *const u8) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_loadu_si256(at.cast()) }
    }
    #[inline(always)]
    unsafe fn store_words(words: Self::Words, at: *mut u8) {
        // SAFETY: the trait's contract.
        unsafe { _mm256_storeu_si256(at.cast(), words) }
    }
    #[inline(always)]
    unsafe fn splat_word(word: u32) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_set1_epi32(word.cast_signed()) }
    }
    #[inline(always)]
    unsafe fn shift_left<const BITS: u32>(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_sll_epi32(words, _mm_cvtsi32_si128(BITS.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_srl_epi32(words, _mm_cvtsi32_si128(BITS.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn and(a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn look_up(table: &[i8; 16], bytes: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract; the table has sixteen bytes.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, bytes)
        }
    }
    #[inline(always)]
    unsafe fn even_bytes(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(words)) }
    }
    #[inline(always)]
    unsafe fn odd_bytes(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_srai_epi16::<8>(words) }
    }
    #[inline(always)]
    unsafe fn add_products(sums: Self::Words, a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)) }
    }
    #[inline(always)]
    unsafe fn to_f32(sums: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_cvtepi32_ps(sums)) }
    }
    #[inline(always)]
    unsafe fn bf16_low(words: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))) }
    }
    #[inline(always)]
    unsafe fn bf16_high(words: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let high = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
            Self(_mm256_castsi256_ps(_mm256_and_si256(words, high)))
        }
    }
}

impl Eight for Avx2 {
    #[inline(always)]
    unsafe fn transpose(rows: [Self; 8]) -> [Self; 8] {
        // SAFETY: the trait's contract.
        unsafe {
            let mut t = rows;
            for g in 0..2 {
                let [r0, r1] = [rows[4 * g].0, rows[4 * g + 1].0];
                let [r2, r3] = [rows[4 * g + 2].0, rows[4 * g + 3].0];
                let (lo01, hi01) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
                let (lo23, hi23) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
                t[4 * g] = Self(_mm256_shuffle_ps::<0x44>(lo01, lo23));
                t[4 * g + 1] = Self(_mm256_shuffle_ps::<0xEE>(lo01, lo23));
                t[4 * g + 2] = Self(_mm256_shuffle_ps::<0x44>(hi01, hi23));
                t[4 * g + 3] = Self(_mm256_shuffle_ps::<0xEE>(hi01, hi23));
            }
            let mut out = t;
            for c in 0..4 {
                out[c] = Self(_mm256_permute2f128_ps::<0x20>(t[c].0, t[4 + c].0));
                out[4 + c] = Self(_mm256_permute2f128_ps::<0x31>(t[c].0, t[4 + c].0));
            }
            out
        }
    }
}
