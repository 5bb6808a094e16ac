//! Register tiles of up to 6 × 16, two side by side in a block: 12 of the 16 registers are sums. One row or two
//! take a whole block at once, since fewer than eight chains of additions would wait for each other.

use super::epilogue::{self, BlockRow, OutTile};
use super::formats::{self, Format, Instantiate};
use super::{Heights, KTree, LinearKernels, PanelKernel, TileKernel, TreeTiles, quantized};
use crate::cpu::simd::avx2::Avx2;
use crate::ops::Epilogue;

/// Vectors side by side in a register tile.
const WIDTH: usize = 2;

struct Kernels;

pub(super) static KERNELS: LinearKernels = LinearKernels {
    of: formats::kernels::<Kernels, Kernels>,
    quantize,
    epilogue,
};

/// # Safety
/// As [`TileKernel`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<F: Format, const W: usize, const ROWS: usize>(
    block: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    // SAFETY: by this function's contract.
    unsafe { F::tile::<Avx2, W, ROWS>(block, k, x, tiles) }
}

/// # Safety
/// As [`PanelKernel`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn panel<F: Format>(block: *const u8, k: KTree, panel: *mut f32) {
    // SAFETY: by this function's contract.
    unsafe { F::panel::<Avx2, WIDTH>(block, k.len, panel) }
}

/// # Safety
/// As [`QuantizeKernel`](super::QuantizeKernel).
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn quantize(x: &[f32], out: &mut [f32]) {
    quantized::quantize(x, out);
}

/// # Safety
/// As [`epilogue::EpilogueKernel`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn epilogue(epilogue: Epilogue, bias: Option<&BlockRow>, tile: &[BlockRow], out: OutTile) {
    // SAFETY: by this function's contract.
    unsafe { epilogue::finish::<Avx2>(epilogue, bias, tile, out) }
}

impl Instantiate for Kernels {
    const HEIGHTS: Heights = Heights(&[1, 2, 4, 6]);
    const DIRECT_ROWS: usize = 8;
    const DIRECT_CODE_ROWS: usize = 12;

    fn tile<F: Format>(rows: usize) -> TileKernel {
        match rows {
            1 => tile::<F, 4, 1>,
            2 => tile::<F, 4, 2>,
            4 => tile::<F, WIDTH, 4>,
            // Codes take registers, too, where they are expanded.
            6 if F::EXPANDS => tile::<F, 1, 6>,
            6 => tile::<F, WIDTH, 6>,
            _ => unreachable!("no tile of {rows} rows"),
        }
    }

    fn panel<F: Format>() -> PanelKernel {
        panel::<F>
    }
}
