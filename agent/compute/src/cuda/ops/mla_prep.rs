//! From the products of multi-head latent attention to rotated queries and cached latents: a block has a row.

use super::OfPool;
use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{Kernel, MlaPrepArgs, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::MlaPrep;

pub(in crate::cuda) fn mla_prep(
    shared: &Shared,
    op: &MlaPrep<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (dtype, floats, rows) = (shared.config.dtype, [DType::F32], op.batch.num_tokens);
    let (rope_dim, latent_dim, head_dim) = (op.rope_dim(), op.norm.len(), op.kv.head_dim);
    let q_len = rows * op.num_heads * (op.nope_dim + rope_dim);
    let out_len = rows * op.num_heads * head_dim;
    let out_slots = &op.batch.out_slots;
    let args = MlaPrepArgs {
        q: op.q.addr_of("mla_prep q", &[dtype], q_len),
        latent: op
            .latent
            .addr_of("mla_prep latent", &[dtype], rows * head_dim),
        norm: op.norm.addr_of("mla_prep norm", &floats, latent_dim),
        rope: op
            .rope
            .addr_of("mla_prep rope table", &floats, rows * rope_dim),
        out_slots: out_slots.addr_of("out_slots", &[DType::U32], rows),
        q_out: op.q_out.addr_of("mla_prep q_out", &[dtype], out_len),
        fault: shared.fault.addr(),
        kv: super::kv_layer(shared, op.kv, op.layer, op.kv_scales),
        num_heads: to_u32(op.num_heads),
        nope_dim: to_u32(op.nope_dim),
        rope_dim: to_u32(rope_dim),
        latent_dim: to_u32(latent_dim),
        eps: op.eps,
        pad: 0,
    };
    let kernels = OfPool {
        bf16: Kernel::MlaPrepBf16,
        f32: Kernel::MlaPrepF32,
        bf16_f8: Kernel::MlaPrepBf16F8,
        f32_f8: Kernel::MlaPrepF32F8,
    };
    let kernel = kernels.of(dtype, op.kv.dtype);
    // A float per warp.
    let shared_bytes = 4 * kernel.threads() as usize / 32;
    shared.launch(kernel, [to_u32(rows), 1, 1], shared_bytes, &args)
}
