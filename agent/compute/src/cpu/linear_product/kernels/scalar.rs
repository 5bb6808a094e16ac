//! Portable tiles of up to 4 × 8, four side by side in a block.

use super::epilogue::{self, BlockRow, OutTile};
use super::formats::{self, Format, Instantiate};
use super::{Heights, KTree, LinearKernels, PanelKernel, TileKernel, TreeTiles, quantized};
use crate::cpu::simd::scalar::Scalar;
use crate::ops::Epilogue;

/// Vectors side by side in a register tile.
const WIDTH: usize = 1;

struct Kernels;

pub(super) static KERNELS: LinearKernels = LinearKernels {
    of: formats::kernels::<Kernels, Kernels>,
    quantize,
    epilogue,
};

/// # Safety
/// As [`TileKernel`].
unsafe fn tile<F: Format, const W: usize, const ROWS: usize>(
    block: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    // SAFETY: by this function's contract.
    unsafe { F::tile::<Scalar, W, ROWS>(block, k, x, tiles) }
}

/// # Safety
/// As [`PanelKernel`].
unsafe fn panel<F: Format>(block: *const u8, k: KTree, panel: *mut f32) {
    // SAFETY: by this function's contract.
    unsafe { F::panel::<Scalar, WIDTH>(block, k.len, panel) }
}

/// # Safety
/// As [`QuantizeKernel`](super::QuantizeKernel).
unsafe fn quantize(x: &[f32], out: &mut [f32]) {
    quantized::quantize(x, out);
}

/// # Safety
/// As [`epilogue::EpilogueKernel`].
unsafe fn epilogue(epilogue: Epilogue, bias: Option<&BlockRow>, tile: &[BlockRow], out: OutTile) {
    // SAFETY: by this function's contract.
    unsafe { epilogue::finish::<Scalar>(epilogue, bias, tile, out) }
}

impl Instantiate for Kernels {
    const HEIGHTS: Heights = Heights(&[1, 4]);
    const DIRECT_ROWS: usize = 1;
    const DIRECT_CODE_ROWS: usize = 4;

    fn tile<F: Format>(rows: usize) -> TileKernel {
        match rows {
            1 => tile::<F, WIDTH, 1>,
            4 => tile::<F, WIDTH, 4>,
            _ => unreachable!("no tile of {rows} rows"),
        }
    }

    fn panel<F: Format>() -> PanelKernel {
        panel::<F>
    }
}
