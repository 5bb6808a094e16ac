//! Sixteen lanes: AVX-512 F, BW, DQ, VL, and where `VNNI` says so, VNNI.

use super::exp::exp_avx512;
use super::sixteen::{LANES, Sixteen};
use super::{Codes, Simd};
use std::arch::x86_64::{
    __m512, __m512i, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_add_ps, _mm_add_ss,
    _mm_cvtss_f32, _mm_loadu_si128, _mm_max_ps, _mm_max_ss, _mm_movehdup_ps, _mm_movehl_ps,
    _mm256_add_epi16, _mm256_add_ps, _mm256_and_si256, _mm256_castps256_ps128,
    _mm256_cvtepi8_epi16, _mm256_extractf128_ps, _mm256_loadu_si256, _mm256_max_ps,
    _mm256_or_si256, _mm256_set1_epi16, _mm256_slli_epi16, _mm256_storeu_si256, _mm512_add_epi32,
    _mm512_add_ps, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_castps_si512,
    _mm512_castps512_ps256, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi8_epi32,
    _mm512_cvtepi32_epi16, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtepu16_epi32,
    _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_div_ps, _mm512_dpwssd_epi32, _mm512_extractf32x8_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_madd_epi16, _mm512_mask_mov_epi32,
    _mm512_mask_mov_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_shuffle_epi8, _mm512_shuffle_f32x4, _mm512_shuffle_ps,
    _mm512_slli_epi16, _mm512_slli_epi32, _mm512_srai_epi16, _mm512_srli_epi32, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_sub_ps, _mm512_unpackhi_ps, _mm512_unpacklo_ps,
};

#[derive(Clone, Copy)]
pub(crate) struct Avx512<const VNNI: bool = false>(pub(crate) __m512);

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    const LANES: usize = LANES;

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
        unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }
    #[inline(always)]
    unsafe fn even_bf16(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(
                _mm512_castps_si512(self.0),
            )))
        }
    }
    #[inline(always)]
    unsafe fn odd_bf16(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let high = _mm512_set1_epi32(!0xffff);
            Self(_mm512_castsi512_ps(_mm512_and_si512(
                _mm512_castps_si512(self.0),
                high,
            )))
        }
    }
    #[inline(always)]
    unsafe fn load_f8_part(at: *const u8) -> Self {
        // SAFETY: the trait's contract. As `e4m3::as_f16`, but that the sign is extended.
        unsafe {
            let codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(at.cast()));
            let moved = _mm256_and_si256(
                _mm256_slli_epi16::<7>(codes),
                _mm256_set1_epi16(0xbf80_u16.cast_signed()),
            );
            let carried = _mm256_add_epi16(moved, _mm256_set1_epi16(0x80));
            let nans = _mm256_and_si256(carried, _mm256_set1_epi16(0x4000));
            Self(_mm512_cvtph_ps(_mm256_or_si256(moved, nans)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { _mm512_storeu_ps(at, self.0) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm256_storeu_si256(at.cast(), halves);
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u16) {
        // SAFETY: the trait's contract. Half of the last place is added, of two the one that keeps it even.
        unsafe {
            let (bits, one) = (_mm512_castps_si512(self.0), _mm512_set1_epi32(1));
            let is_odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), one);
            let half = _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7fff));
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), is_nan, quiet);
            let halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded));
            _mm256_storeu_si256(at.cast(), halves);
        }
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
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_max_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(exp_avx512(self.0)) }
    }
    #[inline(always)]
    unsafe fn select_below(self, bound: Self, less: Self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let is_below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, bound.0);
            Self(_mm512_mask_mov_ps(other.0, is_below, less.0))
        }
    }
}

impl<const VNNI: bool> Codes for Avx512<VNNI> {
    type Words = __m512i;

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
    unsafe fn store_words(words: Self::Words, at: *mut u8) {
        // SAFETY: the trait's contract.
        unsafe { _mm512_storeu_si512(at.cast(), words) }
    }
    #[inline(always)]
    unsafe fn splat_word(word: u32) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_set1_epi32(word.cast_signed()) }
    }
    #[inline(always)]
    unsafe fn shift_left<const BITS: u32>(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_slli_epi32::<BITS>(words) }
    }
    #[inline(always)]
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_srli_epi32::<BITS>(words) }
    }
    #[inline(always)]
    unsafe fn and(a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn look_up(table: &[i8; 16], bytes: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract; the table has sixteen bytes.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, bytes)
        }
    }
    #[inline(always)]
    unsafe fn even_bytes(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(words)) }
    }
    #[inline(always)]
    unsafe fn odd_bytes(words: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe { _mm512_srai_epi16::<8>(words) }
    }
    #[inline(always)]
    unsafe fn add_products(sums: Self::Words, a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: the trait's contract.
        unsafe {
            if VNNI {
                _mm512_dpwssd_epi32(sums, a, b)
            } else {
                _mm512_add_epi32(sums, _mm512_madd_epi16(a, b))
            }
        }
    }
    #[inline(always)]
    unsafe fn to_f32(sums: Self::Words) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_cvtepi32_ps(sums)) }
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

impl Sixteen for Avx512 {
    const MANY_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let v = _mm256_add_ps(
                _mm512_castps512_ps256(self.0),
                _mm512_extractf32x8_ps::<1>(self.0),
            );
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let v = _mm256_max_ps(
                _mm512_castps512_ps256(self.0),
                _mm512_extractf32x8_ps::<1>(self.0),
            );
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        }
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
