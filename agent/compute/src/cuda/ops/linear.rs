//! The linear op: a kernel by the number of rows.

use super::rms_norm;
use crate::buffer::DeviceBuffer;
use crate::cuda::driver::{DriverError, Gemm, Work};
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{
    FEW_8X16, FEW_ROWS, FewRows, HOPPER_SWIZZLE_ALIGN, Kernel, LINEAR_HOPPER_COLUMNS,
    LINEAR_HOPPER_K_STEP, LINEAR_HOPPER_ROWS, LINEAR_HOPPER_STAGES, LINEAR_K_STEP, LINEAR_ROWS_F32,
    LINEAR_SEGMENTS, LINEAR_STAGES, LINEAR_SUMS_STRIDE, LINEAR_TILE, LinearArgs, SwiGluArgs,
    to_u32,
};
use crate::cuda::shared::Shared;
use crate::cuda::weights::CudaLinear;
use crate::dtype::DType;
use crate::ops::{Epilogue, Linear, RmsNorm, WriteMode};

/// Rows up to which our own kernel multiplies where the vendor's library is too: it starts while the kernel before it
/// ends, and joins gate and up by itself.
const OWN_ROWS_MAX: usize = 16;
/// Rows up to which blocks that share k among their warps take less time than tiles, which few rows leave most
/// multiprocessors without: those of decode steps.
const FEW_ROWS_MAX: usize = 256;
/// What a linear that norms its rows, too, makes of them, and their length at most: the norm's weight lies beside the
/// parts in 99 KiB, which every device's blocks may have.
const NORM_TILE: FewRows = FEW_8X16;
const NORM_K_MAX: usize = 6144;
/// Shared memory of a kernel that multiplies tiles: bfloat16 of both matrices.
pub(super) const TILED_BYTES: usize = 2 * LINEAR_STAGES * 2 * LINEAR_TILE * LINEAR_K_STEP;
/// The same of those on Hopper's tensor cores.
pub(super) const HOPPER_BYTES: usize =
    2 * LINEAR_HOPPER_STAGES * (LINEAR_HOPPER_ROWS + LINEAR_HOPPER_COLUMNS) * LINEAR_HOPPER_K_STEP
        + HOPPER_SWIZZLE_ALIGN;

pub(in crate::cuda) fn linear(
    shared: &Shared,
    op: &Linear<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (rows, n, k) = (op.rows, op.weight.n, op.weight.k);
    let args = args_of(shared, op);
    if shared.config.dtype == DType::F32 {
        let grid = [
            to_u32(n.div_ceil(columns_f32())),
            to_u32(rows.div_ceil(LINEAR_ROWS_F32)),
            1,
        ];
        return shared.launch(Kernel::LinearFullF32, grid, 0, &args);
    }
    let by_own = rows <= OWN_ROWS_MAX || shared.config.deterministic;
    if !by_own && by_library(shared, op, &args)? {
        return Ok(());
    }
    let to_f32 = op.out.dtype() == DType::F32;
    if rows <= FEW_ROWS_MAX {
        let tile = few_rows(shared.driver.device().num_sms, rows, n);
        let kernel = if to_f32 { tile.f32 } else { tile.bf16 };
        let grid = [
            to_u32(rows.div_ceil(tile.rows)),
            to_u32(n.div_ceil(tile.columns)),
            1,
        ];
        // A warp has a segment, however many of them this weight has.
        let all_k = match args.shares as usize {
            0 => k,
            shares => k * LINEAR_SEGMENTS / shares,
        };
        return shared.launch(kernel, grid, few_rows_bytes(tile, all_k), &args);
    }
    if takes_hopper(shared) {
        let kernel = if to_f32 {
            Kernel::LinearHopperF32
        } else {
            Kernel::LinearHopperBf16
        };
        let grid = [
            to_u32(rows.div_ceil(LINEAR_HOPPER_ROWS)),
            to_u32(n.div_ceil(LINEAR_HOPPER_COLUMNS)),
            1,
        ];
        return shared.launch(kernel, grid, HOPPER_BYTES, &args);
    }
    let kernel = if to_f32 {
        Kernel::LinearTiledF32
    } else {
        Kernel::LinearTiledBf16
    };
    let tiles = |len: usize| to_u32(len.div_ceil(LINEAR_TILE));
    shared.launch(kernel, [tiles(rows), tiles(n), 1], TILED_BYTES, &args)
}

/// Whether tiles are multiplied by products of warpgroups, whose order of k is their own.
pub(super) fn takes_hopper(shared: &Shared) -> bool {
    shared.driver.device().is_hopper() && !shared.config.deterministic
}

/// Few rows by one kernel; each block norms them for itself, which many would not be worth.
pub(in crate::cuda) fn norm_linear(
    shared: &Shared,
    norm: &RmsNorm<'_, CudaBackend>,
    op: &Linear<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = shared.config.dtype;
    let (rows, n, k) = (op.rows, op.weight.n, op.weight.k);
    let takes_both = dtype == DType::BF16
        && !shared.config.deterministic
        && rows <= NORM_TILE.rows
        && k <= NORM_K_MAX
        && norm.add.is_none()
        && norm.into == WriteMode::Store
        && op.out.dtype() == dtype
        && !norm.x.overlaps(op.out);
    if !takes_both {
        rms_norm::rms_norm(shared, norm)?;
        return linear(shared, op);
    }
    let args = LinearArgs {
        x: norm.x.addr_of("norm_linear x", &[dtype], rows * k),
        norm: rms_norm::weight_addr(norm.weight),
        eps: norm.eps,
        ..args_of(shared, op)
    };
    let grid = [1, to_u32(n.div_ceil(NORM_TILE.columns)), 1];
    let kernel = Kernel::NormLinear8x16Bf16;
    shared.launch(kernel, grid, norm_linear_bytes(k), &args)
}

/// # Panics
/// When a buffer is no such matrix.
fn args_of(shared: &Shared, op: &Linear<'_, CudaBackend>) -> LinearArgs {
    let dtype = shared.config.dtype;
    let (rows, n, k) = (op.rows, op.weight.n, op.weight.k);
    let out_len = op.epilogue.out_len(n);
    LinearArgs {
        x: op.x.addr_of("linear x", &[dtype], rows * k),
        weight: op.weight.weight.addr(),
        out: op
            .out
            .addr_of("linear out", &[dtype, DType::F32], rows * out_len),
        bias: op
            .bias
            .map_or(0, |bias| bias.addr_of("linear bias", &[DType::F32], n)),
        rows: to_u32(rows),
        // Only one order of sums is as good as another where bits are not promised, and eight warps read more than one.
        shares: if shared.config.deterministic {
            op.weight.shares()
        } else {
            0
        },
        ..shape_args(op.epilogue, n, k)
    }
}

/// Of a weight of `n` rows of `k` values, without rows and matrices.
pub(super) fn shape_args(epilogue: Epilogue, n: usize, k: usize) -> LinearArgs {
    let (epilogue, alpha, limit) = match epilogue {
        Epilogue::Store => (0, 0.0, 0.0),
        Epilogue::AddResidual => (1, 0.0, 0.0),
        Epilogue::SoftCap(cap) => (2, 0.0, cap),
        Epilogue::SwiGlu => (3, 0.0, 0.0),
        Epilogue::GeluTanhGlu => (4, 0.0, 0.0),
        Epilogue::ClampedSwiGlu { alpha, limit } => (5, alpha, limit),
    };
    LinearArgs {
        x: 0,
        weight: 0,
        out: 0,
        norm: 0,
        bias: 0,
        rows: 0,
        n: to_u32(n),
        k: to_u32(k),
        epilogue,
        eps: 0.0,
        alpha,
        limit,
        shares: 0,
    }
}

/// Columns that a block makes in f32.
pub(super) fn columns_f32() -> usize {
    Kernel::LinearFullF32.threads() as usize / 32 * 2
}

/// The kernel whose busiest multiprocessor reads least: each block reads its rows of x and its rows of the weight.
fn few_rows(num_sms: u32, rows: usize, n: usize) -> &'static FewRows {
    let read = |tile: &&FewRows| {
        let blocks = rows.div_ceil(tile.rows) * n.div_ceil(tile.columns);
        blocks.div_ceil(num_sms as usize) * (rows.min(tile.rows) + tile.columns)
    };
    // Blocks whose rows are mostly missing multiply for nothing.
    let rows_max = rows.next_power_of_two().max(FEW_ROWS[0].rows);
    let fitting = FEW_ROWS.iter().filter(|tile| tile.rows <= rows_max);
    fitting.min_by_key(read).expect("the first one fits")
}

/// Shared memory: parts of both matrices, no more than k has, and later sums.
pub(super) fn few_rows_bytes(tile: &FewRows, k: usize) -> usize {
    let segment = LINEAR_K_STEP * k.div_ceil(LINEAR_K_STEP * LINEAR_SEGMENTS);
    let slots = tile.slots.min(segment.div_ceil(8 * tile.words));
    let ring = slots * (tile.rows + tile.columns) * 16 * tile.words;
    let sums = tile.rows * LINEAR_SUMS_STRIDE * 4;
    LINEAR_SEGMENTS * ring.max(sums)
}

/// As [`few_rows_bytes`], with the norm's weight, and squares behind the sums.
fn norm_linear_bytes(k: usize) -> usize {
    4 * k + few_rows_bytes(&NORM_TILE, k) + 4 * LINEAR_SEGMENTS * NORM_TILE.rows
}

/// Words of 32 bits that linears of up to `rows` rows need beside their buffers.
pub(in crate::cuda) fn scratch_words(
    shared: &Shared,
    weight: &CudaLinear,
    epilogue: Epilogue,
    rows: usize,
) -> usize {
    let config = shared.config;
    if epilogue != Epilogue::SwiGlu
        || config.deterministic
        || config.dtype == DType::F32
        || rows <= OWN_ROWS_MAX
        || !shared.driver.has_gemm()
    {
        return 0;
    }
    gate_up_words(rows, weight.n)
}

/// Gate and up of all rows, in bfloat16.
fn gate_up_words(rows: usize, n: usize) -> usize {
    (rows * n).div_ceil(2)
}

/// Many rows by the vendor's library, which is faster than the tiled kernel; false where there is none.
fn by_library(
    shared: &Shared,
    op: &Linear<'_, CudaBackend>,
    args: &LinearArgs,
) -> Result<bool, DriverError> {
    let (rows, n, k) = (op.rows, op.weight.n, op.weight.k);
    let mut gemm = Gemm {
        x: args.x,
        weight: args.weight,
        out: args.out,
        rows,
        n,
        k,
        adds: op.epilogue == Epilogue::AddResidual,
        to_f32: op.out.dtype() == DType::F32,
    };
    // What else becomes of a product is done by our own kernels only.
    if !shared.driver.has_gemm() || op.features().next().is_some() {
        return Ok(false);
    }
    if op.epilogue != Epilogue::SwiGlu {
        shared.work(&Work::Gemm(gemm))?;
        return Ok(true);
    }
    // The kernel that joins gate and up takes 8 at a time, of bfloat16.
    if gemm.to_f32 || !(n / 2).is_multiple_of(8) {
        return Ok(false);
    }
    gemm.out = shared.scratch(&shared.gate_up, gate_up_words(rows, n))?;
    shared.work(&Work::Gemm(gemm))?;
    let joined = SwiGluArgs {
        y: gemm.out,
        out: args.out,
        rows: to_u32(rows),
        n: to_u32(n / 2),
    };
    let blocks = (rows * n / 2).div_ceil(8 * Kernel::SwiGluBf16.threads() as usize);
    shared.launch(Kernel::SwiGluBf16, [to_u32(blocks), 1, 1], 0, &joined)?;
    Ok(true)
}

#[cfg(test)]
mod tests;
