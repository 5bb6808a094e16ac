//! The experts' feed-forwards: choices are sorted by expert, both linears run over tiles of choices of one expert, and
//! each row's terms are added up. Which tiles there are is known on the device alone, so a launch has as many as there
//! may be.

use super::linear;
use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{
    ExpertLinearArgs, ExpertTilesArgs, FEW_8X16, FEW_16X32, FEW_32X32, FewRows, Kernel,
    LINEAR_HOPPER_COLUMNS, LINEAR_HOPPER_ROWS, LINEAR_ROWS_F32, LINEAR_TILE, LinearArgs,
    LocalExperts, MOE_COLUMNS, MOE_EXPERTS_MAX, MoeCombineArgs, to_u32,
};
use crate::cuda::shared::Shared;
use crate::device_types::ExpertMatrices as _;
use crate::dtype::DType;
use crate::ops::{Epilogue, ExpertBias, MoeExperts};

/// Choices up to which each is multiplied by itself: few experts are chosen twice then, and no kernel sorts them first.
const UNSORTED_MAX: usize = 64;
/// Rows of an expert beyond which a warpgroup has enough of them.
const HOPPER_ROWS_MIN: usize = 32;
/// Words of an `ExpertTile`.
const TILE_WORDS: usize = 4;

/// A kernel that multiplies tiles, and the most rows of one.
struct TileForm {
    kernel: Kernel,
    rows: usize,
    columns: usize,
    shared_bytes: fn(k: usize) -> usize,
}

/// Where tiles and sorted choices lie on the device; zeros where a tile is a choice.
#[derive(Clone, Copy, Default)]
struct Sorted {
    tiles: u64,
    rows: u64,
    choices: u64,
    /// As many as there may be.
    tiles_max: usize,
}

pub(in crate::cuda) fn moe_experts(
    shared: &Shared,
    op: &MoeExperts<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let choices = op.rows * op.top_k;
    if choices == 0 {
        return Ok(());
    }
    let form = TileForm::of(shared, choices, op.num_experts);
    let sorted = if choices <= UNSORTED_MAX {
        let tiles_max = choices;
        Sorted {
            tiles_max,
            ..Sorted::default()
        }
    } else {
        sort(shared, op, form.rows)?
    };
    let product = Product { op, form, sorted };
    product.gate_up(shared)?;
    product.down(shared)?;
    combine(shared, op)
}

/// Tiles that so many choices may make: one for each expert is not full.
fn tiles_max(choices: usize, experts: usize, tile_rows: usize) -> usize {
    choices.min(choices / tile_rows + experts)
}

fn sort(
    shared: &Shared,
    op: &MoeExperts<'_, CudaBackend>,
    tile_rows: usize,
) -> Result<Sorted, DriverError> {
    let (choices, count) = (op.rows * op.top_k, op.experts.count());
    // For all rows that there is room for, so that it is made once for a model. Each tile has a choice at least.
    let most = op.chosen.len();
    let tile_words = TILE_WORDS * most;
    let scratch = shared.scratch(&shared.choices, tile_words + 2 * most)?;
    let at = |words: usize| scratch + 4 * words as u64;
    let sorted = Sorted {
        tiles: scratch,
        rows: at(tile_words),
        choices: at(tile_words + most),
        tiles_max: tiles_max(choices, count, tile_rows),
    };
    let args = ExpertTilesArgs {
        chosen: chosen_addr(op),
        tiles: sorted.tiles,
        rows: sorted.rows,
        choices: sorted.choices,
        fault: shared.fault.addr(),
        experts: local_experts(op),
        num_choices: to_u32(choices),
        top_k: to_u32(op.top_k),
        tile_rows: to_u32(tile_rows),
        tiles_max: to_u32(sorted.tiles_max),
    };
    // Counts, and two numbers of each thread.
    let words = 3 * MOE_EXPERTS_MAX;
    shared.launch(Kernel::ExpertTiles, [1, 1, 1], 4 * words, &args)?;
    Ok(sorted)
}

fn chosen_addr(op: &MoeExperts<'_, CudaBackend>) -> u64 {
    let choices = op.rows * op.top_k;
    op.chosen
        .addr_of("moe_experts chosen", &[DType::U32], choices)
}

fn local_experts(op: &MoeExperts<'_, CudaBackend>) -> LocalExperts {
    LocalExperts {
        num_experts: to_u32(op.num_experts),
        first: to_u32(op.first_expert),
        count: to_u32(op.experts.count()),
        pad: 0,
    }
}

fn combine(shared: &Shared, op: &MoeExperts<'_, CudaBackend>) -> Result<(), DriverError> {
    let (dtype, hidden) = (shared.config.dtype, op.experts.hidden());
    let choices = op.rows * op.top_k;
    let args = MoeCombineArgs {
        terms: op
            .terms
            .addr_of("moe_experts terms", &[dtype], choices * hidden),
        chosen: chosen_addr(op),
        weights: op
            .weights
            .addr_of("moe_experts weights", &[DType::F32], choices),
        sums: op
            .sums
            .addr_of("moe_experts sums", &[dtype], op.rows * hidden),
        experts: local_experts(op),
        hidden: to_u32(hidden),
        top_k: to_u32(op.top_k),
    };
    let kernel = if dtype == DType::F32 {
        Kernel::MoeCombineF32
    } else {
        Kernel::MoeCombineBf16
    };
    let grid = [to_u32(hidden.div_ceil(MOE_COLUMNS)), to_u32(op.rows), 1];
    shared.launch(kernel, grid, 4 * 2 * op.top_k, &args)
}

/// Both linears over the same tiles.
struct Product<'a> {
    op: &'a MoeExperts<'a, CudaBackend>,
    form: TileForm,
    sorted: Sorted,
}

// === impl Product ===

impl Product<'_> {
    fn gate_up(&self, shared: &Shared) -> Result<(), DriverError> {
        let (op, dtype) = (self.op, shared.config.dtype);
        let (hidden, width) = (op.experts.hidden(), op.experts.width());
        let (n, count) = (2 * width, op.experts.count());
        let bias = op.bias.as_ref().map_or(0, |ExpertBias { gate_up, .. }| {
            gate_up.addr_of("moe_experts bias", &[DType::F32], count * n)
        });
        let choices = op.rows * op.top_k;
        let product = LinearArgs {
            x: op.x.addr_of("moe_experts x", &[dtype], op.rows * hidden),
            weight: op.experts.gate_up.addr(),
            out: op
                .gated
                .addr_of("moe_experts gated", &[dtype], choices * width),
            bias,
            ..linear::shape_args(op.glu, n, hidden)
        };
        self.launch(shared, product, self.sorted.rows, op.top_k)
    }

    fn down(&self, shared: &Shared) -> Result<(), DriverError> {
        let (op, dtype) = (self.op, shared.config.dtype);
        let (hidden, width) = (op.experts.hidden(), op.experts.width());
        let (choices, count) = (op.rows * op.top_k, op.experts.count());
        let bias = op.bias.as_ref().map_or(0, |ExpertBias { down, .. }| {
            down.addr_of("moe_experts bias", &[DType::F32], count * hidden)
        });
        let product = LinearArgs {
            x: op
                .gated
                .addr_of("moe_experts gated", &[dtype], choices * width),
            weight: op.experts.down.addr(),
            out: op
                .terms
                .addr_of("moe_experts terms", &[dtype], choices * hidden),
            bias,
            ..linear::shape_args(Epilogue::Store, hidden, width)
        };
        self.launch(shared, product, self.sorted.choices, 1)
    }

    /// `x_rows` are the rows of x that the sorted choices multiply; there are `x_divisor` choices for each.
    fn launch(
        &self,
        shared: &Shared,
        product: LinearArgs,
        x_rows: u64,
        x_divisor: usize,
    ) -> Result<(), DriverError> {
        let Self { op, form, sorted } = self;
        let (n, k) = (product.n as usize, product.k as usize);
        let args = ExpertLinearArgs {
            product,
            chosen: chosen_addr(op),
            tiles: sorted.tiles,
            x_rows,
            out_rows: sorted.choices,
            fault: shared.fault.addr(),
            experts: local_experts(op),
            x_divisor: to_u32(x_divisor),
            pad: 0,
        };
        let (tiles, columns) = (to_u32(sorted.tiles_max), to_u32(n.div_ceil(form.columns)));
        let grid = if shared.config.dtype == DType::F32 {
            [columns, tiles, 1]
        } else {
            [tiles, columns, 1]
        };
        shared.launch(form.kernel, grid, (form.shared_bytes)(k), &args)
    }
}

// === impl TileForm ===

impl TileForm {
    /// By the rows that an expert has if choices are spread evenly.
    fn of(shared: &Shared, choices: usize, experts: usize) -> Self {
        if shared.config.dtype == DType::F32 {
            return Self {
                kernel: Kernel::ExpertFullF32,
                rows: LINEAR_ROWS_F32,
                columns: linear::columns_f32(),
                shared_bytes: |_| 0,
            };
        }
        let rows = choices.div_ceil(experts);
        if choices <= UNSORTED_MAX || rows <= 8 {
            let bytes = |k| linear::few_rows_bytes(&FEW_8X16, k);
            Self::few(Kernel::Expert8x16Bf16, &FEW_8X16, bytes)
        } else if rows <= 16 {
            let bytes = |k| linear::few_rows_bytes(&FEW_16X32, k);
            Self::few(Kernel::Expert16x32Bf16, &FEW_16X32, bytes)
        } else if rows > HOPPER_ROWS_MIN && linear::takes_hopper(shared) {
            Self {
                kernel: Kernel::ExpertHopperBf16,
                rows: LINEAR_HOPPER_ROWS,
                columns: LINEAR_HOPPER_COLUMNS,
                shared_bytes: |_| linear::HOPPER_BYTES,
            }
        } else if rows <= 64 {
            let bytes = |k| linear::few_rows_bytes(&FEW_32X32, k);
            Self::few(Kernel::Expert32x32Bf16, &FEW_32X32, bytes)
        } else {
            Self {
                kernel: Kernel::ExpertTiledBf16,
                rows: LINEAR_TILE,
                columns: LINEAR_TILE,
                shared_bytes: |_| linear::TILED_BYTES,
            }
        }
    }

    fn few(kernel: Kernel, tile: &FewRows, shared_bytes: fn(usize) -> usize) -> Self {
        Self {
            kernel,
            rows: tile.rows,
            columns: tile.columns,
            shared_bytes,
        }
    }
}
