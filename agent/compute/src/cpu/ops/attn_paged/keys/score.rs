//! Scores of a few queries, of keys that are turned in registers.

use super::{KeyPlaces, load_sixteen};
use crate::cpu::kv_layer::{KvLayer, Region};
use crate::cpu::ops::attn_paged::ahead::Ahead;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::ATTN_BLOCK_LEN;
use std::ops::Range;

impl KeyPlaces {
    /// Writes `out[row][key]`, the products of `R` queries, `query_dim` apart, with the keys of [`Self::vectors`].
    ///
    /// # Safety
    /// As [`Self::transpose_keys`]; queries and `out` have `R` rows.
    #[inline(always)]
    pub(in crate::cpu::ops::attn_paged) unsafe fn score<V: Sixteen, const R: usize>(
        &self,
        layer: &KvLayer,
        queries: *const f32,
        query_dim: usize,
        out: *mut f32,
        ahead: &impl Ahead,
    ) {
        let vectors = self.vectors();
        let mut vector = 0;
        // SAFETY: the caller's.
        unsafe {
            while vector < vectors {
                let (key, out) = (vector * LANES, out.add(vector * LANES));
                // Those at an end of what is read take longer: one alone, not two.
                vector += if self.are_read(key..key + 2 * LANES) {
                    self.score_vectors::<V, R, 2>(layer, key, queries, query_dim, out, ahead)
                } else {
                    self.score_vectors::<V, R, 1>(layer, key, queries, query_dim, out, ahead)
                };
            }
        }
    }

    /// `N` vectors of keys from `first_key` on, beside each other, so that chains need not wait for themselves.
    ///
    /// # Safety
    /// As [`Self::score`].
    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "a closure or an iterator over vectors may be compiled without their instructions"
    )]
    unsafe fn score_vectors<V: Sixteen, const R: usize, const N: usize>(
        &self,
        layer: &KvLayer,
        first_key: usize,
        queries: *const f32,
        query_dim: usize,
        out: *mut f32,
        ahead: &impl Ahead,
    ) -> usize {
        // SAFETY: the caller's; the places are written slots of the region.
        unsafe {
            let mut sums = [[V::splat(0.0); N]; R];
            let mut turned = [[V::splat(0.0); LANES]; N];
            let is_read = self.are_read(first_key..first_key + N * LANES);
            let mut first_dim = 0;
            while first_dim < layer.head_dim {
                let dims = layer.head_dim - first_dim;
                let query = queries.add(first_dim);
                if let Region::BF16(region) = &layer.region
                    && is_read
                    && dims >= 2 * LANES
                {
                    for n in 0..N {
                        let key = first_key + n * LANES;
                        ahead.ask_keys(key, first_dim);
                        let at = self.at[key..].as_ptr();
                        turned[n] = V::transpose(load_pairs(region.as_ptr().add(first_dim), at));
                    }
                    for i in 0..LANES {
                        for r in 0..R {
                            let query = query.add(r * query_dim + 2 * i);
                            for n in 0..N {
                                let pairs = turned[n][i];
                                sums[r][n] = V::splat(*query).fma(pairs.even_bf16(), sums[r][n]);
                                let odd = V::splat(*query.add(1));
                                sums[r][n] = odd.fma(pairs.odd_bf16(), sums[r][n]);
                            }
                        }
                    }
                    first_dim += 2 * LANES;
                    continue;
                }
                let dims = dims.min(LANES);
                for n in 0..N {
                    let key = first_key + n * LANES;
                    ahead.ask_keys(key, first_dim);
                    turned[n] = V::transpose(if is_read && dims == LANES {
                        load_sixteen::<V>(layer, self.at[key..].as_ptr(), first_dim)
                    } else {
                        self.load_some::<V>(layer, key, first_dim, dims)
                    });
                }
                for i in 0..dims {
                    for r in 0..R {
                        let query = V::splat(*query.add(r * query_dim + i));
                        for n in 0..N {
                            sums[r][n] = query.fma(turned[n][i], sums[r][n]);
                        }
                    }
                }
                first_dim += LANES;
            }
            for r in 0..R {
                for n in 0..N {
                    sums[r][n].store(out.add(r * ATTN_BLOCK_LEN + n * LANES));
                }
            }
        }
        N
    }

    pub(in crate::cpu::ops::attn_paged) fn are_read(&self, keys: Range<usize>) -> bool {
        self.keys.start <= keys.start && keys.end <= self.keys.end
    }
}

/// Sixteen pairs of bfloat16 of each of sixteen keys, which begin at `at` from `base` on.
///
/// # Safety
/// Of [`KeyPlaces::score`].
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "a closure or an iterator over vectors may be compiled without their instructions"
)]
unsafe fn load_pairs<V: Sixteen>(base: *const u16, at: *const usize) -> [V; LANES] {
    // SAFETY: the caller's.
    unsafe {
        let mut rows = [V::splat(0.0); LANES];
        for i in 0..LANES {
            rows[i] = V::load(base.add(*at.add(i)).cast());
        }
        rows
    }
}
