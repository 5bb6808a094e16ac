//! Products of a packed block with a few rows of activations.
//!
//! [`walk`] expands a block's weights or codes in k order, [`sink`] says what becomes of them: multiplied
//! into a register tile, or written to a panel for tiles to come. The instruction sets ([`avx512`], [`avx512_vnni`],
//! [`avx2`], [`scalar`]) only instantiate these, for all [`formats`]. All of them agree bit for bit, since each output
//! element is one chain from 0 over ascending k, or a tree of eight such chains ([`shares`]):
//!
//! * of floating-point weights, `acc = fma(x[k], w[k], acc)`;
//! * of integer codes, for each run of k that has a scale in the weight, `acc = fma(scale · x_scale, sum, acc)` with
//!   the exact sum of the products of codes and [`quantized`] activations, and where 32 k have a minimum, then
//!   `acc = fma(minimum, x_sum · x_scale, acc)`;
//! * of bfloat16, [`avx512_bf16`] has a chain of its own over pairs of k, and [`amx`] chains over even and odd k.

pub(crate) mod amx;
pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod avx512_bf16;
pub(crate) mod avx512_vnni;
pub(crate) mod epilogue;
mod formats;
pub(crate) mod quantized;
pub(crate) mod scalar;
pub(crate) mod shares;
mod sink;
mod walk;

use crate::cpu::isa::Isa;
use crate::cpu::pack::{BLOCK_LANES, Bf16Form, Segment};
use crate::dtype::WeightFormat;
pub(crate) use formats::FormatKernels;
use quantized::QuantizeKernel;
use shares::{KTree, TreeTiles};

/// Rows of the largest tile.
pub(crate) const MAX_TILE_ROWS: usize = 32;

/// `[row][lane]`.
pub(crate) type Tile = [[f32; BLOCK_LANES]; MAX_TILE_ROWS];

/// Multiplies a block with a tile of activations.
///
/// # Safety
/// The instruction set is there. `block` is a packed block of the kernel's format, or a panel of one, for rows of `k`
/// values. `x` is the kernel's number of rows as its [`Operand`]: `[k][rows]` f32, `[k.div_ceil(2)][rows]` pairs,
/// `[shares][steps][rows][16]` pairs of AMX's tiles, or `[k / 32][18][rows]` words of [`quantized`] groups. Shares of k are whole numbers of pairs or groups.
pub(crate) type TileKernel =
    unsafe fn(block: *const u8, k: KTree, x: *const f32, tiles: &mut TreeTiles);

/// Expands a block: to f32, `[k][32]`, which is a packed block of F32, to codes of sixteen bits and f32 scales, to a whole
/// block of bfloat16, or to such rows of pairs as steps of AMX's tiles.
///
/// # Safety
/// As [`TileKernel`]; `panel` has [`panel_bytes`].
pub(crate) type PanelKernel = unsafe fn(block: *const u8, k: KTree, panel: *mut f32);

/// Room for any panel: of 32 f32 for each k, or of steps of pairs, which may take more where shares are short. Codes of
/// sixteen bits and their scales take less.
pub(crate) fn panel_bytes(k: KTree) -> usize {
    k.len.max(amx::row_words(k)) * BLOCK_LANES * 4
}

/// Activations as a tile multiplies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    F32,
    /// f32 with the values of bfloat16.
    RoundedF32,
    /// Words of two bfloat16, the even k low; a last odd k is paired with 0.
    Bf16Pairs,
    /// bfloat16 as AMX loads it: for each share and thirty-two k of it `[rows][32]`, the last filled with 0.
    Bf16Tiles,
    /// Integers of sixteen bits, with a scale for each thirty-two (see [`quantized`]).
    Quantized,
}

/// Heights of the tiles there are, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heights(&'static [usize]);

/// The kernels of an instruction set.
pub(crate) struct LinearKernels {
    pub(crate) of: fn(WeightFormat) -> FormatKernels,
    pub(crate) quantize: QuantizeKernel,
    pub(crate) epilogue: epilogue::EpilogueKernel,
}

impl LinearKernels {
    pub(crate) fn of(isa: Isa) -> &'static Self {
        match isa {
            Isa::Scalar => &scalar::KERNELS,
            Isa::Avx2 => &avx2::KERNELS,
            Isa::Avx512 => &avx512::KERNELS,
            Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => &avx512_vnni::KERNELS,
        }
    }

    /// Those of a segment's format and form.
    ///
    /// # Panics
    /// Of a form that another instruction set has alone.
    pub(crate) fn of_segment(&self, segment: &Segment, isa: Isa) -> FormatKernels {
        let of_format = (self.of)(segment.format);
        match (segment.bf16, isa) {
            (None, _) => of_format,
            (Some(form), Isa::Avx512Bf16) => avx512_bf16::kernels(form),
            (Some(form), Isa::Amx) => amx::kernels(form),
            (Some(Bf16Form::Whole), _) => FormatKernels {
                operand: Operand::RoundedF32,
                ..of_format
            },
            (Some(Bf16Form::Compact), isa) => {
                panic!(
                    "compact bfloat16 is for avx512bf16 and amx, not {}",
                    isa.name()
                )
            }
        }
    }
}

// === impl Heights ===

impl Heights {
    /// The lowest tile of at least `rows`.
    pub(crate) fn fitting(self, rows: usize) -> usize {
        let fitting = self.0.iter().copied().find(|height| *height >= rows);
        fitting.expect("rows are divided by the highest tile")
    }

    pub(crate) fn highest(self) -> usize {
        self.0
            .last()
            .copied()
            .expect("an instruction set has a tile")
    }
}
