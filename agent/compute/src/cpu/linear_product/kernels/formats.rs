//! The kernels of each packed format: those that expand weights and multiply them as f32, and those that multiply
//! integer codes with quantised activations.

#![allow(clippy::needless_range_loop, reason = "see `super::walk`")]

use super::quantized::{GROUP_LEN, GROUP_WORDS};
use super::shares::{KTree, Share, TreeTiles};
use super::sink::{CodeProduct, Panel, Product};
use super::walk::{self, CodeWalk, Lanes, Walk};
use super::{Heights, Operand, PanelKernel, TileKernel};
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::simd::Codes;
use crate::dtype::WeightFormat;
use std::marker::PhantomData;

/// A packed format, or what a panel has of one.
///
/// # Safety
/// As [`TileKernel`] and [`PanelKernel`], with the instruction set of `V`.
pub(super) trait Format {
    const OPERAND: Operand;
    /// Whether its tiles make integers of codes, which takes registers.
    const EXPANDS: bool;
    /// What its panels have.
    type Expanded: Format;

    unsafe fn tile<V: Codes, const W: usize, const ROWS: usize>(
        block: *const u8,
        k: KTree,
        x: *const f32,
        tiles: &mut TreeTiles,
    );
    unsafe fn panel<V: Codes, const W: usize>(block: *const u8, k: usize, panel: *mut f32);
}

struct Floats<F>(PhantomData<F>);
struct Integers<F>(PhantomData<F>);

/// An instruction set's kernels of any format.
pub(super) trait Instantiate {
    const HEIGHTS: Heights;
    /// Of floats, and of integers.
    const DIRECT_ROWS: usize;
    const DIRECT_CODE_ROWS: usize;

    fn tile<F: Format>(rows: usize) -> TileKernel;
    fn panel<F: Format>() -> PanelKernel;
}

/// The kernels of a format, for tiles of the heights that the instruction set has.
pub(crate) struct FormatKernels {
    /// What the tiles multiply: f32 or integers.
    pub(crate) operand: Operand,
    pub(crate) heights: Heights,
    /// Up to this many rows it is quicker to expand weights in the product than ahead of it.
    pub(crate) direct_rows: usize,
    /// Of packed blocks.
    pub(crate) tile: fn(rows: usize) -> TileKernel,
    /// Of panels.
    pub(crate) panel_tile: fn(rows: usize) -> TileKernel,
    /// None where packed blocks are what a panel would be.
    pub(crate) panel: Option<PanelKernel>,
}

/// The kernels of `format`: of floats those that `F` makes, of integers those of `I`.
pub(super) fn kernels<F: Instantiate, I: Instantiate>(format: WeightFormat) -> FormatKernels {
    match format {
        WeightFormat::F32 => FormatKernels {
            panel: None,
            ..of::<F, Floats<walk::F32>>()
        },
        WeightFormat::F16 => of::<F, Floats<walk::F16>>(),
        WeightFormat::BF16 => of::<F, Floats<walk::Bf16>>(),
        WeightFormat::F8E4M3 { .. } => of::<F, Floats<walk::F8E4M3>>(),
        WeightFormat::Mxfp4 => of::<F, Floats<walk::Mxfp4>>(),
        WeightFormat::Q8_0 => of::<I, Integers<walk::Q8_0>>(),
        WeightFormat::Q4_0 => of::<I, Integers<walk::Q4_0>>(),
        WeightFormat::Q4_1 => of::<I, Integers<walk::Q4_1>>(),
        WeightFormat::Q4K => of::<I, Integers<walk::Q4K>>(),
        WeightFormat::Q6K => of::<I, Integers<walk::Q6K>>(),
    }
}

fn of<I: Instantiate, F: Format>() -> FormatKernels {
    FormatKernels {
        operand: F::OPERAND,
        heights: I::HEIGHTS,
        direct_rows: if F::OPERAND == Operand::Quantized {
            I::DIRECT_CODE_ROWS
        } else {
            I::DIRECT_ROWS
        },
        tile: I::tile::<F>,
        panel_tile: I::tile::<F::Expanded>,
        panel: Some(I::panel::<F>()),
    }
}

impl<F: Walk> Format for Floats<F> {
    const OPERAND: Operand = Operand::F32;
    const EXPANDS: bool = false;
    type Expanded = Floats<walk::F32>;

    #[inline(always)]
    unsafe fn tile<V: Codes, const W: usize, const ROWS: usize>(
        block: *const u8,
        k: KTree,
        x: *const f32,
        tiles: &mut TreeTiles,
    ) {
        if W * V::LANES == BLOCK_LANES || F::K_AT_A_TIME == usize::MAX {
            for lanes in Lanes::all::<V, W>(block) {
                for Share { ks, pairs } in k.shares() {
                    let to = pairs.start;
                    // SAFETY: by the trait's contract, and as the lanes are in each tile.
                    unsafe {
                        let mut product = Product::<V, W, ROWS>::new(x.add(ks.start * ROWS));
                        F::walk(lanes, ks, &mut product);
                        for pair in pairs.rev() {
                            product.add(&tiles.sums[pair], lanes.lane);
                        }
                        product.store(&mut tiles.sums[to], lanes.lane);
                    }
                }
            }
            return;
        }
        for Share { ks, pairs } in k.shares() {
            let starts = ks.clone().step_by(F::K_AT_A_TIME);
            for part in starts.map(|start| start..ks.end.min(start + F::K_AT_A_TIME)) {
                for lanes in Lanes::all::<V, W>(block) {
                    // SAFETY: by the trait's contract, and as the lanes are in each tile.
                    unsafe {
                        let mut product = Product::<V, W, ROWS>::new(x.add(part.start * ROWS));
                        if part.start > ks.start {
                            product.load(&tiles.sums[pairs.end], lanes.lane);
                        }
                        F::walk(lanes, part.clone(), &mut product);
                        let mut to = pairs.end;
                        if part.end == ks.end {
                            for pair in pairs.clone().rev() {
                                product.add(&tiles.sums[pair], lanes.lane);
                            }
                            to = pairs.start;
                        }
                        product.store(&mut tiles.sums[to], lanes.lane);
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn panel<V: Codes, const W: usize>(block: *const u8, k: usize, panel: *mut f32) {
        for lanes in Lanes::all::<V, W>(block) {
            // SAFETY: by the trait's contract.
            unsafe {
                let next = panel.add(lanes.lane);
                F::walk::<V, W>(lanes, 0..k, &mut Panel { next });
            }
        }
    }
}

impl<F: CodeWalk> Format for Integers<F> {
    const OPERAND: Operand = Operand::Quantized;
    const EXPANDS: bool = F::EXPANDS;
    type Expanded = Integers<F::Expanded>;

    /// Thirty-two k of all lanes before the next, so that the block is one stream.
    #[inline(always)]
    unsafe fn tile<V: Codes, const W: usize, const ROWS: usize>(
        block: *const u8,
        k: KTree,
        x: *const f32,
        tiles: &mut TreeTiles,
    ) {
        for Share { ks, pairs } in k.shares() {
            let sums = tiles.sums[pairs.end][..ROWS].as_flattened_mut();
            sums.fill(0.0);
            let tile = sums.as_mut_ptr();
            for group in ks.start / GROUP_LEN..ks.end / GROUP_LEN {
                for lanes in Lanes::all::<V, W>(block) {
                    // SAFETY: by the trait's contract, and as the lanes are in the tile.
                    unsafe {
                        let x = x.add(group * GROUP_WORDS * ROWS);
                        let mut product = CodeProduct::<V, W, ROWS>::new(x, tile.add(lanes.lane));
                        F::walk(lanes, group, &mut product);
                    }
                }
            }
            // SAFETY: the caller has the instruction set.
            unsafe { tiles.add::<V, ROWS>(pairs) };
        }
    }

    #[inline(always)]
    unsafe fn panel<V: Codes, const W: usize>(block: *const u8, k: usize, panel: *mut f32) {
        for lanes in Lanes::all::<V, W>(block) {
            // SAFETY: by the trait's contract.
            unsafe {
                let next = panel.add(lanes.lane);
                let mut panel = Panel { next };
                for group in 0..k / GROUP_LEN {
                    F::walk::<V, W>(lanes, group, &mut panel);
                }
            }
        }
    }
}
