//! RMS norm of each head, with a gate: a warp has a head.

use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{GatedNormArgs, Kernel, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::GatedNorm;

pub(in crate::cuda) fn gated_norm(
    shared: &Shared,
    op: &GatedNorm<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (dtype, head_dim) = (shared.config.dtype, op.weight.len());
    let row_len = op.num_heads * head_dim;
    let args = GatedNormArgs {
        x: op.x.addr_of("gated_norm x", &[dtype], op.rows * row_len),
        z: op
            .z
            .values
            .addr_of("gated_norm z", &[dtype], op.z.len(op.rows, row_len)),
        weight: op
            .weight
            .addr_of("gated_norm weight", &[DType::F32], head_dim),
        z_row_stride: op.z.row_stride as u64,
        num_heads: to_u32(op.num_heads),
        head_dim: to_u32(head_dim),
        eps: op.eps,
        pad: 0,
    };
    let kernel = if dtype == DType::F32 {
        Kernel::GatedNormF32
    } else {
        Kernel::GatedNormBf16
    };
    let warps = kernel.threads() as usize / 32;
    let grid = [to_u32(op.rows), to_u32(op.num_heads.div_ceil(warps)), 1];
    shared.launch(kernel, grid, 0, &args)
}
