//! Register tiles of up to 12 × 32: 24 of the 32 registers are sums, two weights, one activation.

use super::epilogue::{self, BlockRow, OutTile};
use super::formats::{self, Format, Instantiate};
use super::{Heights, KTree, LinearKernels, PanelKernel, TileKernel, TreeTiles, quantized};
use crate::cpu::simd::avx512::Avx512;
use crate::ops::Epilogue;
use std::arch::x86_64::{
    _mm256_storeu_si256, _mm512_abs_ps, _mm512_add_epi32, _mm512_castps_si512,
    _mm512_cvtepi32_epi16, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_epu32,
    _mm512_reduce_add_epi32, _mm512_reduce_max_epu32, _mm512_set1_ps, _mm512_sub_epi32,
};

/// Vectors side by side in a register tile.
pub(super) const WIDTH: usize = 2;

pub(super) struct Kernels;

pub(super) const KERNELS: LinearKernels = LinearKernels {
    of: formats::kernels::<Kernels, Kernels>,
    quantize,
    epilogue,
};

/// # Safety
/// As [`TileKernel`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn tile<F: Format, const W: usize, const ROWS: usize>(
    block: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    // SAFETY: by this function's contract.
    unsafe { F::tile::<Avx512, W, ROWS>(block, k, x, tiles) }
}

/// # Safety
/// As [`PanelKernel`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn panel<F: Format>(block: *const u8, k: KTree, panel: *mut f32) {
    // SAFETY: by this function's contract.
    unsafe { F::panel::<Avx512, WIDTH>(block, k.len, panel) }
}

/// # Safety
/// As [`QuantizeKernel`](super::QuantizeKernel).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn quantize(x: &[f32], out: &mut [f32]) {
    for (x, out) in quantized::groups(x, out) {
        // SAFETY: two vectors of a group; the instruction set by the contract.
        unsafe {
            let x = [0, 16].map(|at| _mm512_loadu_ps(x.as_ptr().add(at)));
            let sizes = x.map(|x| _mm512_castps_si512(_mm512_abs_ps(x)));
            let greatest = _mm512_reduce_max_epu32(_mm512_max_epu32(sizes[0], sizes[1]));
            let (scale, inverse) = quantized::scale(f32::from_bits(greatest));
            let rounding = _mm512_set1_ps(quantized::ROUNDING);
            let integers = x.map(|x| {
                let rounded = _mm512_fmadd_ps(x, _mm512_set1_ps(inverse), rounding);
                let bits = _mm512_castps_si512(rounded);
                _mm512_sub_epi32(bits, _mm512_castps_si512(rounding))
            });
            let sum = _mm512_reduce_add_epi32(_mm512_add_epi32(integers[0], integers[1]));
            quantized::write_head(scale, sum, out);
            let [low, high] = integers.map(|integers| _mm512_cvtepi32_epi16(integers));
            let words = out.as_mut_ptr().add(quantized::HEAD_WORDS);
            _mm256_storeu_si256(words.cast(), low);
            _mm256_storeu_si256(words.add(8).cast(), high);
        }
    }
}

/// # Safety
/// As [`epilogue::EpilogueKernel`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn epilogue(epilogue: Epilogue, bias: Option<&BlockRow>, tile: &[BlockRow], out: OutTile) {
    // SAFETY: by this function's contract.
    unsafe { epilogue::finish::<Avx512>(epilogue, bias, tile, out) }
}

impl Instantiate for Kernels {
    const HEIGHTS: Heights = Heights(&[1, 2, 3, 4, 6, 8, 10, 12]);
    const DIRECT_ROWS: usize = 12;
    const DIRECT_CODE_ROWS: usize = 12;

    fn tile<F: Format>(rows: usize) -> TileKernel {
        match rows {
            1 => tile::<F, WIDTH, 1>,
            2 => tile::<F, WIDTH, 2>,
            3 => tile::<F, WIDTH, 3>,
            4 => tile::<F, WIDTH, 4>,
            6 => tile::<F, WIDTH, 6>,
            8 => tile::<F, WIDTH, 8>,
            10 => tile::<F, WIDTH, 10>,
            12 => tile::<F, WIDTH, 12>,
            _ => unreachable!("no tile of {rows} rows"),
        }
    }

    fn panel<F: Format>() -> PanelKernel {
        panel::<F>
    }
}
