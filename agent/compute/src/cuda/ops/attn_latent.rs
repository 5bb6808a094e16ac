//! Attention over latents: on Hopper's tensor cores a block for a tile of queries and heads, otherwise one for each query
//! and some of its heads.

use super::OfPool;
use super::attn_paged::args_of;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{
    ATTN_LATENT_DIM_MAX, ATTN_LATENT_HEADS, Kernel, LATENT_FOLD_GROUPS, LATENT_TILE_DIM_MAX,
    LATENT_TILE_FEW_ROWS, LATENT_TILE_FEW_SHARED, LATENT_TILE_MANY_ROWS, LATENT_TILE_MANY_SHARED,
    LATENT_TILE_VALUE_DIM_MAX, to_u32,
};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{AttnPaged, OpFeature};

pub(super) fn attn_latent(
    shared: &Shared,
    op: &AttnPaged<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (head_dim, num_kv_heads) = (op.kv.head_dim, op.kv.num_kv_heads);
    assert!(
        num_kv_heads == 1 && takes_head_dim(head_dim),
        "attention over latents takes one head that is a multiple of 8 up to {ATTN_LATENT_DIM_MAX}, not \
         {num_kv_heads} of {head_dim}"
    );
    assert!(
        op.features()
            .all(|feature| feature == OpFeature::LatentAttention),
        "attention over latents has neither window nor cap, sinks or gate"
    );
    if takes_tiles(shared, op) {
        return attend_tiles(shared, op);
    }
    let kernels = OfPool {
        bf16: Kernel::AttendLatentBf16,
        f32: Kernel::AttendLatentF32,
        bf16_f8: Kernel::AttendLatentBf16F8,
        f32_f8: Kernel::AttendLatentF32F8,
    };
    let kernel = kernels.of(shared.config.dtype, op.kv.dtype);
    let heads = op.num_q_heads.div_ceil(ATTN_LATENT_HEADS);
    let warps = kernel.threads() as usize / 32;
    let partials = warps * ATTN_LATENT_HEADS * (ATTN_LATENT_DIM_MAX + 2);
    // Other axes than the first end at 65,535, and a prompt may be longer.
    let grid = [to_u32(heads * op.batch.num_tokens), 1, 1];
    shared.launch(kernel, grid, 4 * partials, &args_of(shared, op))
}

/// Whether the kernel takes latents, with their keys, of so many elements.
pub(in crate::cuda) fn takes_head_dim(head_dim: usize) -> bool {
    head_dim.is_multiple_of(8) && (1..=ATTN_LATENT_DIM_MAX).contains(&head_dim)
}

/// Devices before Hopper lack the shared memory; results are written by twos.
fn takes_tiles(shared: &Shared, op: &AttnPaged<'_, CudaBackend>) -> bool {
    let value_dim = op.value_dim();
    (shared.config.dtype, op.kv.dtype) == (DType::BF16, DType::BF16)
        && shared.driver.device().is_hopper()
        && op.kv.head_dim <= LATENT_TILE_DIM_MAX
        && value_dim <= LATENT_TILE_VALUE_DIM_MAX
        && value_dim.is_multiple_of(2)
}

fn attend_tiles(shared: &Shared, op: &AttnPaged<'_, CudaBackend>) -> Result<(), DriverError> {
    let (tokens, seqs) = (op.batch.num_tokens, op.batch.num_seqs);
    let rows = tokens * op.num_q_heads;
    // One kernel for all steps, and no splits, are what keep a row's bits the same.
    let is_deterministic = shared.config.deterministic;
    let is_few = tokens == seqs && op.num_q_heads <= LATENT_TILE_FEW_ROWS && !is_deterministic;
    let (kernel, tile_rows, shared_bytes) = if is_few {
        let kernel = Kernel::AttendLatentTile16;
        (kernel, LATENT_TILE_FEW_ROWS, LATENT_TILE_FEW_SHARED)
    } else {
        let kernel = Kernel::AttendLatentTile64;
        (kernel, LATENT_TILE_MANY_ROWS, LATENT_TILE_MANY_SHARED)
    };
    let tiles = if tokens == seqs {
        tokens * op.num_q_heads.div_ceil(tile_rows)
    } else {
        // A sequence may end within a tile.
        rows / tile_rows + seqs
    };
    let mut args = args_of(shared, op);
    if !is_deterministic {
        // A multiprocessor has room for one block.
        let splits = (shared.driver.device().num_sms as usize / tiles).max(1);
        if splits > 1 {
            let partials = rows * splits * (op.value_dim() + 2);
            args.partials = shared.scratch(&shared.partials, partials)?;
        }
        args.splits = to_u32(splits);
    }
    let grid = [to_u32(tiles), args.splits, 1];
    shared.launch(kernel, grid, shared_bytes, &args)?;
    if args.splits > 1 {
        let sums = LATENT_FOLD_GROUPS * LATENT_TILE_VALUE_DIM_MAX;
        shared.launch(
            Kernel::FoldLatentSplits,
            [to_u32(rows), 1, 1],
            4 * sums,
            &args,
        )?;
    }
    Ok(())
}
