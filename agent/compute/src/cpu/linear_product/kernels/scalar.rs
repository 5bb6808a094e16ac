//! Portable tiles of up to 4 × 8, four side by side in a block.

#![allow(clippy::needless_range_loop, reason = "see `super::walk`")]

use super::epilogue::{self, BlockRow, OutTile};
use super::sink::{Panel, Product};
use super::walk::{self, Lanes, Walk};
use super::{LinearKernels, PanelKernel, Tile, TileKernel};
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::simd::Simd;
use crate::cpu::simd::scalar::Scalar;
use crate::dtype::WeightFormat;
use crate::ops::Epilogue;

/// Vectors side by side in a register tile.
const WIDTH: usize = 1;

pub(super) static KERNELS: LinearKernels = LinearKernels {
    tile_rows: &[1, 4],
    direct_rows: 1,
    tile: tile_kernel,
    panel: panel_kernel,
    epilogue,
};

/// # Safety
/// As [`TileKernel`].
unsafe fn tile<F: Walk, const W: usize, const ROWS: usize>(
    block: *const u8,
    k: usize,
    x: *const f32,
    tile: &mut Tile,
) {
    for lane in (0..BLOCK_LANES).step_by(W * Scalar::LANES) {
        let lanes = Lanes { block, lane };
        // SAFETY: by this function's contract, and as the lanes from `lane` on are in the block
        // and in the tile.
        unsafe {
            let mut product = Product::<Scalar, W, ROWS>::new(x);
            F::walk(lanes, k, &mut product);
            for row in 0..ROWS {
                for i in 0..W {
                    let out = tile[row].as_mut_ptr().add(lane + i * Scalar::LANES);
                    product.sums[row][i].store(out);
                }
            }
        }
    }
}

/// # Safety
/// As [`PanelKernel`].
unsafe fn panel<F: Walk>(block: *const u8, k: usize, panel: *mut f32) {
    for lane in (0..BLOCK_LANES).step_by(WIDTH * Scalar::LANES) {
        let lanes = Lanes { block, lane };
        // SAFETY: by this function's contract.
        unsafe {
            let mut sink = Panel {
                next: panel.add(lane),
            };
            F::walk::<Scalar, WIDTH>(lanes, k, &mut sink);
        }
    }
}

/// # Safety
/// As [`epilogue::EpilogueKernel`].
unsafe fn epilogue(epilogue: Epilogue, bias: Option<&BlockRow>, tile: &[BlockRow], out: OutTile) {
    // SAFETY: by this function's contract.
    unsafe { epilogue::finish::<Scalar>(epilogue, bias, tile, out) }
}

fn tile_kernel(format: WeightFormat, rows: usize) -> TileKernel {
    match format {
        WeightFormat::F32 => tile_of::<walk::F32>(rows),
        WeightFormat::F16 => tile_of::<walk::F16>(rows),
        WeightFormat::BF16 => tile_of::<walk::Bf16>(rows),
        WeightFormat::F8E4M3 { .. } => tile_of::<walk::F8E4M3>(rows),
        WeightFormat::Q8_0 => tile_of::<walk::Q8_0>(rows),
        WeightFormat::Q4_0 => tile_of::<walk::Q4_0>(rows),
        WeightFormat::Q4_1 => tile_of::<walk::Q4_1>(rows),
        WeightFormat::Q4K => tile_of::<walk::Q4K>(rows),
        WeightFormat::Q6K => tile_of::<walk::Q6K>(rows),
        WeightFormat::Mxfp4 => tile_of::<walk::Mxfp4>(rows),
    }
}

fn tile_of<F: Walk>(rows: usize) -> TileKernel {
    match rows {
        1 => tile::<F, WIDTH, 1>,
        4 => tile::<F, WIDTH, 4>,
        _ => unreachable!("no tile of {rows} rows"),
    }
}

fn panel_kernel(format: WeightFormat) -> PanelKernel {
    match format {
        WeightFormat::F32 => panel::<walk::F32>,
        WeightFormat::F16 => panel::<walk::F16>,
        WeightFormat::BF16 => panel::<walk::Bf16>,
        WeightFormat::F8E4M3 { .. } => panel::<walk::F8E4M3>,
        WeightFormat::Q8_0 => panel::<walk::Q8_0>,
        WeightFormat::Q4_0 => panel::<walk::Q4_0>,
        WeightFormat::Q4_1 => panel::<walk::Q4_1>,
        WeightFormat::Q4K => panel::<walk::Q4K>,
        WeightFormat::Q6K => panel::<walk::Q6K>,
        WeightFormat::Mxfp4 => panel::<walk::Mxfp4>,
    }
}
