//! bfloat16 weights times activations rounded to bfloat16, by `vdpbf16ps`: two products are added
//! to an f32 sum per instruction, which treats denormals as zero. Pairs go in ascending k, in one
//! chain per output, so these results too are the same at every number of rows.

pub(super) mod weights;

use super::avx512;
use super::formats::Instantiate as _;
use super::shares::{KTree, Share, TreeTiles};
use super::{FormatKernels, Operand, TileKernel};
use crate::cpu::pack::Bf16Form;
use crate::cpu::pack::layout::WORDS;
use std::arch::x86_64::{
    __m512bh, __m512i, _mm512_add_ps, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_storeu_ps, _mm512_storeu_si512,
};
use weights::{Compact, Weights, Whole};

pub(crate) fn kernels(form: Bf16Form) -> FormatKernels {
    let (tile, panel) = match form {
        Bf16Form::Whole => (tile_kernel::<Whole, 1> as fn(usize) -> TileKernel, None),
        Bf16Form::Compact => (
            tile_kernel::<Compact, 2> as fn(usize) -> TileKernel,
            Some(panel as super::PanelKernel),
        ),
    };
    FormatKernels {
        operand: Operand::Bf16Pairs,
        heights: avx512::Kernels::HEIGHTS,
        direct_rows: avx512::Kernels::DIRECT_ROWS,
        tile,
        panel_tile: tile_kernel::<Whole, 1>,
        panel,
    }
}

/// Heights of the tiles there are, those of the f32 kernels.
fn tile_kernel<W: Weights<N>, const N: usize>(rows: usize) -> TileKernel {
    match rows {
        1 => tile::<W, N, 1>,
        2 => tile::<W, N, 2>,
        3 => tile::<W, N, 3>,
        4 => tile::<W, N, 4>,
        6 => tile::<W, N, 6>,
        8 => tile::<W, N, 8>,
        10 => tile::<W, N, 10>,
        12 => tile::<W, N, 12>,
        _ => unreachable!("no tile of {rows} rows"),
    }
}

/// # Safety
/// As [`TileKernel`], with pairs of activations.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn tile<W: Weights<N>, const N: usize, const ROWS: usize>(
    block: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    let pairs_of_x: *const i32 = x.cast();
    // SAFETY: a packed block of rows of `k.len` values.
    let mut weights = unsafe { W::of_block(block, k.len) };
    for Share { ks, pairs } in k.shares() {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        for first in (ks.start / 2..ks.end.div_ceil(2)).step_by(N) {
            // SAFETY: the rows of pairs follow each other, ⌈k / 2⌉ of them, and a share has a multiple of `N`.
            let rows_of_pairs = unsafe { weights.next(first) };
            for (i, weights) in rows_of_pairs.into_iter().enumerate() {
                for (row, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: `x` has `ROWS` pairs for each row of pairs.
                    let x = unsafe { *pairs_of_x.add((first + i) * ROWS + row) };
                    let x = _mm512_set1_epi32(x);
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        *sum = _mm512_dpbf16_ps(*sum, as_pairs(x), as_pairs(weights));
                    }
                }
            }
        }
        let to = pairs.start;
        for pair in pairs.rev() {
            for (row, sums) in tiles.sums[pair].iter().zip(&mut sums) {
                // SAFETY: a row of the tile has 32 f32.
                unsafe {
                    sums[0] = _mm512_add_ps(_mm512_loadu_ps(row.as_ptr()), sums[0]);
                    sums[1] = _mm512_add_ps(_mm512_loadu_ps(row.as_ptr().add(16)), sums[1]);
                }
            }
        }
        for (row, sums) in tiles.sums[to].iter_mut().zip(sums) {
            // SAFETY: as above.
            unsafe {
                _mm512_storeu_ps(row.as_mut_ptr(), sums[0]);
                _mm512_storeu_ps(row.as_mut_ptr().add(16), sums[1]);
            }
        }
    }
}

/// Rounds each two values to bfloat16 in a word, the first one low; a last one alone with 0. Denormals become zeros, as
/// they are in products.
///
/// # Safety
/// The instruction set is there.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn pair_up(values: &[f32], words: &mut [f32]) {
    let (chunks, rest) = values.as_chunks::<32>();
    let (words, words_rest) = words.split_at_mut(chunks.len() * 16);
    let round = |values: &[f32; 32], words: &mut [f32; 16]| {
        // SAFETY: two vectors of f32, and one of pairs; the instruction set by the contract.
        unsafe { round_pairs(values.as_ptr(), words.as_mut_ptr()) }
    };
    for (values, words) in chunks.iter().zip(words.as_chunks_mut().0) {
        round(values, words);
    }
    let (mut last, mut pairs) = ([0.0; 32], [0.0; 16]);
    last[..rest.len()].copy_from_slice(rest);
    round(&last, &mut pairs);
    words_rest.copy_from_slice(&pairs[..words_rest.len()]);
}

/// A compact block as a whole one.
///
/// # Safety
/// As [`PanelKernel`](super::PanelKernel).
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn panel(block: *const u8, k: KTree, panel: *mut f32) {
    // SAFETY: a packed block of rows of `k` values, and room for it whole.
    unsafe {
        let mut weights = Compact::of_block(block, k.len);
        for first in (0..k.len / 2).step_by(2) {
            let out = panel.cast::<u8>().add(first * WORDS);
            for (i, row) in weights.next(first).into_iter().enumerate() {
                let out = out.add(i * WORDS);
                _mm512_storeu_si512(out.cast(), row[0]);
                _mm512_storeu_si512(out.add(WORDS / 2).cast(), row[1]);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
pub(crate) fn as_pairs(words: __m512i) -> __m512bh {
    // SAFETY: the same 512 bits; every bit pattern is a vector of bfloat16.
    unsafe { std::mem::transmute(words) }
}

/// Rounds thirty-two values to sixteen pairs. The two may overlap.
///
/// # Safety
/// As many f32 and words; the instruction set is there.
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
pub(crate) unsafe fn round_pairs(values: *const f32, words: *mut f32) {
    // SAFETY: by the contract; the same 512 bits.
    unsafe {
        let (low, high) = (_mm512_loadu_ps(values), _mm512_loadu_ps(values.add(16)));
        let pairs: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
        _mm512_storeu_si512(words.cast(), pairs);
    }
}
