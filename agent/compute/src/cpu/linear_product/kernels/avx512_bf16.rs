//! bfloat16 weights times activations rounded to bfloat16, by `vdpbf16ps`: two products are added
//! to an f32 sum per instruction, which treats denormals as zero. Pairs go in ascending k, in one
//! chain per output, so these results too are the same at every number of rows.

use super::TileKernel;
use super::shares::{KTree, Share, TreeTiles};
use crate::cpu::pack::layout::WORDS;
use crate::cpu::simd::avx512::Avx512;
use std::arch::x86_64::{
    __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

/// Heights of the tiles there are, those of the f32 kernels.
pub(crate) fn tile_kernel(rows: usize) -> TileKernel {
    match rows {
        1 => tile::<1>,
        2 => tile::<2>,
        3 => tile::<3>,
        4 => tile::<4>,
        6 => tile::<6>,
        8 => tile::<8>,
        10 => tile::<10>,
        12 => tile::<12>,
        _ => unreachable!("no tile of {rows} rows"),
    }
}

/// # Safety
/// As [`TileKernel`], with pairs of activations.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn tile<const ROWS: usize>(
    block: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    let pairs_of_x: *const i32 = x.cast();
    for Share { ks, pairs } in k.shares() {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        for i in ks.start / 2..ks.end.div_ceil(2) {
            // SAFETY: row `i` of ⌈k / 2⌉ rows of 32 words.
            let weights = unsafe {
                let row = block.add(i * WORDS);
                [
                    _mm512_loadu_si512(row.cast()),
                    _mm512_loadu_si512(row.add(WORDS / 2).cast()),
                ]
            };
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `x` has `ROWS` pairs for each of ⌈k / 2⌉ rows.
                let x = _mm512_set1_epi32(unsafe { *pairs_of_x.add(i * ROWS + row) });
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_dpbf16_ps(*sum, as_pairs(x), as_pairs(weights));
                }
            }
        }
        for (row, sums) in tiles.0[pairs.end].iter_mut().zip(sums) {
            // SAFETY: a row of the tile has 32 f32.
            unsafe {
                _mm512_storeu_ps(row.as_mut_ptr(), sums[0]);
                _mm512_storeu_ps(row.as_mut_ptr().add(16), sums[1]);
            }
        }
        // SAFETY: what has AVX-512 BF16 has this.
        unsafe { tiles.add::<Avx512, ROWS>(pairs) };
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
fn as_pairs(words: __m512i) -> __m512bh {
    // SAFETY: the same 512 bits; every bit pattern is a vector of bfloat16.
    unsafe { std::mem::transmute(words) }
}
