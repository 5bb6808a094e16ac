//! Register tiles of up to 12 × 32: 24 of the 32 registers are sums, two weights, one activation.

use super::epilogue::{self, BlockRow, OutTile};
use super::formats::{self, Format, Instantiate};
use super::{KTree, LinearKernels, PanelKernel, TileKernel, TreeTiles, quantized};
use crate::cpu::simd::avx512::Avx512;
use crate::ops::Epilogue;

/// Vectors side by side in a register tile.
pub(super) const WIDTH: usize = 2;

pub(super) struct Kernels;

pub(super) const KERNELS: LinearKernels = LinearKernels {
    tile_rows: &[1, 2, 3, 4, 6, 8, 10, 12],
    direct_rows: 12,
    direct_code_rows: 12,
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
unsafe fn panel<F: Format>(block: *const u8, k: usize, panel: *mut f32) {
    // SAFETY: by this function's contract.
    unsafe { F::panel::<Avx512, WIDTH>(block, k, panel) }
}

/// # Safety
/// As [`QuantizeKernel`](super::QuantizeKernel).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn quantize(x: &[f32], out: &mut [f32]) {
    quantized::quantize(x, out);
}

/// # Safety
/// As [`epilogue::EpilogueKernel`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn epilogue(epilogue: Epilogue, bias: Option<&BlockRow>, tile: &[BlockRow], out: OutTile) {
    // SAFETY: by this function's contract.
    unsafe { epilogue::finish::<Avx512>(epilogue, bias, tile, out) }
}

impl Instantiate for Kernels {
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
