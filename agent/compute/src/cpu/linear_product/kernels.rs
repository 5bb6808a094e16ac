//! Products of a packed block with a few rows of activations.
//!
//! [`walk`] expands a block's weights in k order, [`sink`] says what becomes of them: multiplied
//! into a register tile, or written out as f32 for tiles to come. The instruction sets
//! ([`avx512`], [`avx2`], [`scalar`]) only instantiate these. Each output element is one chain of
//! `acc = fma(x[k], w[k], acc)` from 0 over ascending k, in every kernel, so all of them agree bit
//! for bit; [`avx512_bf16`] has a chain of its own over pairs of k.

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod avx512_bf16;
pub(crate) mod epilogue;
pub(crate) mod scalar;
mod sink;
mod walk;

use crate::cpu::isa::Isa;
use crate::cpu::pack::BLOCK_LANES;
use crate::dtype::WeightFormat;

/// Rows of the largest register tile.
pub(crate) const MAX_TILE_ROWS: usize = 12;

/// `[row][lane]`.
pub(crate) type Tile = [[f32; BLOCK_LANES]; MAX_TILE_ROWS];

/// Multiplies a block with a tile of activations.
///
/// # Safety
/// The instruction set is there. `block` is a packed block of the kernel's format for rows of `k`
/// values. `x` is `[k][rows]` f32 for the kernel's number of rows (of the bf16 kernels
/// `[k.div_ceil(2)][rows]` pairs).
pub(crate) type TileKernel = unsafe fn(block: *const u8, k: usize, x: *const f32, tile: &mut Tile);

/// Expands a block to f32, `[k][32]`, which is a packed block of F32.
///
/// # Safety
/// As [`TileKernel`]; `panel` has room for `32 · k` f32.
pub(crate) type PanelKernel = unsafe fn(block: *const u8, k: usize, panel: *mut f32);

/// The f32 kernels of an instruction set.
pub(crate) struct LinearKernels {
    /// Heights of the tiles there are, ascending.
    pub(crate) tile_rows: &'static [usize],
    /// Up to this many rows it is quicker to expand weights in the product than ahead of it.
    pub(crate) direct_rows: usize,
    pub(crate) tile: fn(WeightFormat, usize) -> TileKernel,
    pub(crate) panel: fn(WeightFormat) -> PanelKernel,
    pub(crate) epilogue: epilogue::EpilogueKernel,
}

impl LinearKernels {
    pub(crate) fn of(isa: Isa) -> &'static Self {
        match isa {
            Isa::Scalar => &scalar::KERNELS,
            Isa::Avx2 => &avx2::KERNELS,
            Isa::Avx512 | Isa::Avx512Bf16 => &avx512::KERNELS,
        }
    }

    /// The lowest tile of at least `rows`.
    pub(crate) fn fitting_tile(&self, rows: usize) -> usize {
        let fitting = self
            .tile_rows
            .iter()
            .copied()
            .find(|height| *height >= rows);
        fitting.expect("rows are divided by the highest tile")
    }

    pub(crate) fn highest_tile(&self) -> usize {
        self.tile_rows
            .last()
            .copied()
            .expect("an instruction set has a tile")
    }
}
