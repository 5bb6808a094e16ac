//! Attention over latents: a block for each query and some of its heads.

use super::OfPool;
use super::attn_paged::args_of;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{ATTN_LATENT_DIM_MAX, ATTN_LATENT_HEADS, Kernel, to_u32};
use crate::cuda::shared::Shared;
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
