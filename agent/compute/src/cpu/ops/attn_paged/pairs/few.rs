//! What a few rows multiply, made in registers.

use super::product::PairRows;
use crate::cpu::linear_product::as_pairs;
use crate::cpu::ops::attn_paged::ahead::Ahead;
use crate::cpu::ops::attn_paged::keys::KeyPlaces;
use crate::cpu::ops::attn_paged::products::Products;
use crate::cpu::simd::avx512::Avx512;
use crate::cpu::simd::sixteen::LANES;
use crate::ops::ATTN_BLOCK_LEN;
use std::arch::x86_64::{
    __m512, __m512i, _mm256_loadu_si256, _mm512_castps_si512, _mm512_cvtepu16_epi32,
    _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_or_si512, _mm512_permutex2var_ps,
    _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps,
    _mm512_unpackhi_epi16, _mm512_unpacklo_epi16,
};

/// Values where they lie in the pool, two keys' to a pair.
pub(super) struct PlacedValues<'a, A> {
    pub(super) places: &'a KeyPlaces,
    /// The region, from the first key's value.
    pub(super) base: *const u16,
    pub(super) ahead: &'a A,
}

impl<A: Ahead> PairRows for PlacedValues<'_, A> {
    /// Two vectors come of thirty-two values of each key, and hold every other four of them: those that lie in the same
    /// quarters of words. One alone is in order.
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, pair: usize, vector: usize) -> [__m512i; N] {
        let keys = [2 * pair, 2 * pair + 1];
        if vector == 0 {
            keys.iter().for_each(|key| self.ahead.ask_value(*key));
        }
        // SAFETY: the caller's; a key that is not read is masked, and has the place of one that is.
        unsafe {
            let row = |key: usize| self.base.add(self.places.at(key) + vector * LANES);
            let (even, odd) = (row(keys[0]), row(keys[1]));
            let mut vectors = [_mm512_set1_epi32(0); N];
            if N == 1 {
                let half = |at: *const u16| _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
                vectors[0] = _mm512_or_si512(half(even), _mm512_slli_epi32::<16>(half(odd)));
                return vectors;
            }
            for n in (0..N).step_by(2) {
                let even = _mm512_loadu_si512(even.add(n * LANES).cast());
                let odd = _mm512_loadu_si512(odd.add(n * LANES).cast());
                vectors[n] = _mm512_unpacklo_epi16(even, odd);
                vectors[n + 1] = _mm512_unpackhi_epi16(even, odd);
            }
            vectors
        }
    }

    #[inline(always)]
    unsafe fn in_order<const N: usize>(mut sums: [__m512; N]) -> [__m512; N] {
        if N == 1 {
            return sums;
        }
        // SAFETY: the caller's.
        unsafe {
            let first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
            let second =
                _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
            for n in (0..N).step_by(2) {
                let (low, high) = (sums[n], sums[n + 1]);
                sums[n] = _mm512_permutex2var_ps(low, first, high);
                sums[n + 1] = _mm512_permutex2var_ps(low, second, high);
            }
        }
        sums
    }
}

impl<A: Ahead> Products<'_, A> {
    /// Writes `out[row][key]` of `R` queries.
    ///
    /// # Safety
    /// As [`Products::score_pairs`]; queries are pairs, and they and `out` have `R` rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn score_few<const R: usize>(&self, queries: *const u32, out: *mut f32) {
        let vectors = self.places.vectors();
        let mut vector = 0;
        while vector < vectors {
            let first_key = vector * LANES;
            // SAFETY: by the contract.
            unsafe {
                let out = out.add(first_key);
                vector += if vector + 2 <= vectors {
                    self.score_vectors::<R, 2>(first_key, queries, out)
                } else {
                    self.score_vectors::<R, 1>(first_key, queries, out)
                };
            }
        }
    }

    /// `N` vectors of keys beside each other, so that chains need not wait for themselves.
    ///
    /// # Safety
    /// As [`Self::score_few`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers")]
    unsafe fn score_vectors<const R: usize, const N: usize>(
        &self,
        first_key: usize,
        queries: *const u32,
        out: *mut f32,
    ) -> usize {
        let key_dim = self.tile.padded_key_dim();
        // SAFETY: the caller's.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); N]; R];
            for first_dim in (0..key_dim).step_by(2 * LANES) {
                let mut turned = [[Avx512::<false>(_mm512_setzero_ps()); LANES]; N];
                for n in 0..N {
                    turned[n] = self.turned(first_key + n * LANES, first_dim);
                }
                for i in 0..LANES {
                    for r in 0..R {
                        let query = queries.add(r * key_dim + first_dim / 2 + i);
                        let query = as_pairs(_mm512_set1_epi32(query.read().cast_signed()));
                        for n in 0..N {
                            let keys = as_pairs(_mm512_castps_si512(turned[n][i].0));
                            sums[r][n] = _mm512_dpbf16_ps(sums[r][n], query, keys);
                        }
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    _mm512_storeu_ps(out.add(r * ATTN_BLOCK_LEN + n * LANES), sums[r][n]);
                }
            }
        }
        N
    }
}
