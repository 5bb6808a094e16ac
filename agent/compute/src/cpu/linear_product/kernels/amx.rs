//! bfloat16 weights times activations rounded to bfloat16, by AMX's `tdpbf16ps`: sixteen rows of sixteen outputs, or four
//! times as many at once, and thirty-two k.
//!
//! Of each thirty-two k of a share the instruction makes two chains of fused multiply-adds from 0, over even k and over
//! odd k, and adds their sum to the output's; denormals are zeros (Intel's SDM, volume 2, TDPBF16PS). So a row's bits are
//! the same at every number of rows.

use super::avx512_bf16::round_pairs;
use super::avx512_bf16::weights::{Compact, Weights, Whole};
use super::shares::{KTree, Share, TreeTiles};
use super::{FormatKernels, Heights, Operand, PanelKernel, TileKernel};
use crate::cpu::pack::Bf16Form;
use crate::cpu::pack::layout::WORDS;
use crate::cpu::simd::avx512::Avx512;
use crate::cpu::simd::tiles::{TILE_ROW, TILE_ROWS};
use std::arch::asm;
use std::arch::x86_64::_mm512_storeu_si512;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Pairs of k in a step, and words of a row of them.
pub(crate) const STEP_PAIRS: usize = 16;
/// Bytes of thirty-two outputs' weights in a step.
const STEP: usize = STEP_PAIRS * WORDS;
/// Steps that are made whole by turns: while one is written, the one before it is multiplied.
const PARTS: usize = 4;

/// Weights that are made whole.
#[repr(align(64))]
struct Part(MaybeUninit<[u8; PARTS * STEP]>);

pub(crate) fn kernels(form: Bf16Form) -> FormatKernels {
    let (tile, panel) = match form {
        Bf16Form::Whole => (
            tile_kernel::<Whole, 1> as fn(usize) -> TileKernel,
            panel::<Whole, 1> as PanelKernel,
        ),
        Bf16Form::Compact => (
            tile_kernel::<Compact, 2> as fn(usize) -> TileKernel,
            panel::<Compact, 2> as PanelKernel,
        ),
    };
    FormatKernels {
        operand: Operand::Bf16Tiles,
        heights: Heights(&[1, 2, 4, 8, 16, 32]),
        direct_rows: 32,
        tile,
        panel_tile: panel_kernel,
        panel: Some(panel),
    }
}

fn tile_kernel<W: Weights<N>, const N: usize>(rows: usize) -> TileKernel {
    match rows {
        1 => tile::<W, N, 1>,
        2 => tile::<W, N, 2>,
        4 => tile::<W, N, 4>,
        8 => tile::<W, N, 8>,
        16 => tile::<W, N, 16>,
        32 => tile::<W, N, 32>,
        _ => unreachable!("no tile of {rows} rows"),
    }
}

/// More rows than are multiplied directly make tiles of more than half the highest.
fn panel_kernel(rows: usize) -> TileKernel {
    match rows {
        32 => panel_tile::<32>,
        16 => panel_tile::<16>,
        _ => unreachable!("no tile of a panel has {rows} rows"),
    }
}

/// Words of an arranged row.
pub(crate) fn row_words(k: KTree) -> usize {
    k.shares * steps(k) * STEP_PAIRS
}

/// Steps of a share.
fn steps(k: KTree) -> usize {
    (k.len / k.shares).div_ceil(2 * STEP_PAIRS)
}

/// Rounds a row and writes its steps `height` rows apart.
///
/// # Safety
/// The instruction set is there.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn arrange(row: &[f32], k: KTree, height: usize, out: &mut [f32]) {
    let mut out = out.chunks_mut(height * STEP_PAIRS);
    for share in row.chunks((k.len / k.shares).max(1)) {
        let (steps, rest) = share.as_chunks::<{ 2 * STEP_PAIRS }>();
        let mut last = [0.0; 2 * STEP_PAIRS];
        last[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(&last);
        for (values, out) in steps.iter().chain(last).zip(&mut out) {
            let words = &mut out[..STEP_PAIRS];
            // SAFETY: thirty-two values and sixteen words; the instruction set by the contract.
            unsafe { round_pairs(values.as_ptr(), words.as_mut_ptr()) };
        }
    }
}

/// # Safety
/// As [`TileKernel`], with arranged activations; this process may use AMX.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
unsafe fn tile<W: Weights<N>, const N: usize, const ROWS: usize>(
    block: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    let mut part = Part(MaybeUninit::uninit());
    let part: *mut u8 = part.0.as_mut_ptr().cast();
    let mut x: *const u8 = x.cast();
    // SAFETY: a packed block of rows of `k.len` values; a step of activations for each sixteen pairs of a share; a part
    // is whole steps.
    unsafe {
        tiles.amx.shape(ROWS.min(TILE_ROWS));
        let mut weights = W::of_block(block, k.len);
        for Share { ks, pairs } in k.shares() {
            clear::<ROWS>();
            let end = ks.end.div_ceil(2);
            let mut ready: *const u8 = part;
            for (i, first) in (ks.start / 2..end).step_by(STEP_PAIRS).enumerate() {
                let next = part.add(i % PARTS * STEP);
                expand(&mut weights, first..end.min(first + STEP_PAIRS), next);
                if i > 0 {
                    multiply::<ROWS>(x, ready, 1);
                    x = x.add(ROWS * TILE_ROW);
                }
                ready = next;
            }
            multiply::<ROWS>(x, ready, 1);
            x = x.add(ROWS * TILE_ROW);
            store::<ROWS>(tiles, pairs);
        }
    }
}

/// # Safety
/// As [`tile`], of a panel.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
unsafe fn panel_tile<const ROWS: usize>(
    panel: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    let (mut x, mut weights): (*const u8, _) = (x.cast(), panel);
    let steps = steps(k);
    // SAFETY: as many steps of activations and of whole weights for each share.
    unsafe {
        tiles.amx.shape(ROWS.min(TILE_ROWS));
        for Share { pairs, .. } in k.shares() {
            clear::<ROWS>();
            multiply::<ROWS>(x, weights, steps);
            x = x.add(steps * ROWS * TILE_ROW);
            weights = weights.add(steps * STEP);
            store::<ROWS>(tiles, pairs);
        }
    }
}

/// A block as steps of each share.
///
/// # Safety
/// As [`PanelKernel`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn panel<W: Weights<N>, const N: usize>(block: *const u8, k: KTree, panel: *mut f32) {
    let mut out: *mut u8 = panel.cast();
    // SAFETY: a packed block of rows of `k.len` values, and room for its steps.
    unsafe {
        let mut weights = W::of_block(block, k.len);
        for Share { ks, .. } in k.shares() {
            let steps = expand(&mut weights, ks.start / 2..ks.end.div_ceil(2), out);
            out = out.add(steps * STEP);
        }
    }
}

/// Writes rows of pairs, filled up with zeros to whole steps, and returns how many steps.
///
/// # Safety
/// As [`Weights::next`]; `out` has room for the steps.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn expand<W: Weights<N>, const N: usize>(
    weights: &mut W,
    pairs: Range<usize>,
    out: *mut u8,
) -> usize {
    let (count, steps) = (pairs.len(), pairs.len().div_ceil(STEP_PAIRS));
    // SAFETY: by the contract.
    unsafe {
        for i in (0..count).step_by(N) {
            let rows = weights.next(pairs.start + i);
            for (j, row) in rows.into_iter().enumerate() {
                let out = out.add((i + j) * WORDS);
                _mm512_storeu_si512(out.cast(), row[0]);
                _mm512_storeu_si512(out.add(TILE_ROW).cast(), row[1]);
            }
        }
        let empty = steps * STEP_PAIRS - count;
        out.add(count * WORDS).write_bytes(0, empty * WORDS);
    }
    steps
}

/// # Safety
/// The tiles have shapes.
#[inline]
unsafe fn clear<const ROWS: usize>() {
    // SAFETY: by the contract. Compiled code has nothing in tiles.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", options(nostack, nomem));
        if ROWS > TILE_ROWS {
            asm!("tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        }
    }
}

/// Adds `steps` steps to the sums.
///
/// # Safety
/// The tiles have shapes for `ROWS`; there are so many steps of activations and of whole weights, at least one.
#[inline]
unsafe fn multiply<const ROWS: usize>(x: *const u8, weights: *const u8, steps: usize) {
    macro_rules! multiply_by {
        ($($line:literal)*) => {
            asm!(
                "2:",
                $($line,)*
                "add {x}, {x_step}",
                "add {w}, {w_step}",
                "dec {steps}",
                "jnz 2b",
                x = inout(reg) x => _,
                w = inout(reg) weights => _,
                steps = inout(reg) steps => _,
                x_row = in(reg) TILE_ROW,
                w_row = in(reg) WORDS,
                x_step = const ROWS * TILE_ROW,
                w_step = const STEP,
                options(nostack, readonly),
            )
        };
    }
    // SAFETY: by the contract.
    unsafe {
        if ROWS > TILE_ROWS {
            multiply_by!(
                "tileloadd tmm6, [{w} + {w_row}]"
                "tileloadd tmm7, [{w} + {w_row} + 64]"
                "tileloadd tmm4, [{x} + {x_row}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tileloadd tmm5, [{x} + {x_row} + 1024]"
                "tdpbf16ps tmm2, tmm5, tmm6"
                "tdpbf16ps tmm3, tmm5, tmm7"
            );
        } else {
            multiply_by!(
                "tileloadd tmm4, [{x} + {x_row}]"
                "tileloadd tmm6, [{w} + {w_row}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm7, [{w} + {w_row} + 64]"
                "tdpbf16ps tmm1, tmm4, tmm7"
            );
        }
    }
}

/// Puts a share's sums in their place in the tree.
///
/// # Safety
/// The tiles have shapes for `ROWS`; AVX-512 is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline]
unsafe fn store<const ROWS: usize>(tiles: &mut TreeTiles, pairs: Range<usize>) {
    let to: *mut u8 = tiles.sums[pairs.end].as_mut_ptr().cast();
    // SAFETY: a tile in memory has `ROWS` rows of thirty-two f32; the rest by the contract.
    unsafe {
        asm!(
            "tilestored [{to} + {row}], tmm0",
            "tilestored [{to} + {row} + 64], tmm1",
            to = in(reg) to,
            row = in(reg) WORDS,
            options(nostack),
        );
        if ROWS > TILE_ROWS {
            asm!(
                "tilestored [{to} + {row}], tmm2",
                "tilestored [{to} + {row} + 64], tmm3",
                to = in(reg) to.add(TILE_ROWS * WORDS),
                row = in(reg) WORDS,
                options(nostack),
            );
        }
        tiles.add::<Avx512, ROWS>(pairs);
    }
}
