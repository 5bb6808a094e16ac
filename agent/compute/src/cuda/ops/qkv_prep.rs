//! From the qkv product to rotated queries and cached keys and values.

use super::OfPool;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{Kernel, QKV_PREP_HEAD_DIM_MAX, QkvPrepArgs, to_u32};
use crate::cuda::memory::CudaBuffer;
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::QkvPrep;

pub(in crate::cuda) fn qkv_prep(
    shared: &Shared,
    op: &QkvPrep<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = shared.config.dtype;
    let (rows, head_dim) = (op.batch.num_tokens, op.kv.head_dim);
    let heads = op.heads();
    let rotary_dim = op.rotary_dim;
    assert!(
        head_dim <= QKV_PREP_HEAD_DIM_MAX,
        "qkv_prep: heads of {head_dim} exceed {QKV_PREP_HEAD_DIM_MAX}"
    );
    let floats = [DType::F32];
    let norm = |norm: Option<&CudaBuffer>, what| {
        norm.map_or(0, |norm| norm.addr_of(what, &floats, head_dim))
    };
    let out_slots = &op.batch.out_slots;
    let args = QkvPrepArgs {
        qkv: op.qkv.addr_of("qkv", &[dtype], op.qkv_len()),
        bias: op.bias.map_or(0, |bias| {
            bias.addr_of("qkv bias", &floats, heads * head_dim)
        }),
        q_norm: norm(op.q_norm, "q_norm"),
        k_norm: norm(op.k_norm, "k_norm"),
        rope: op.rope.addr_of("rope table", &floats, rows * rotary_dim),
        out_slots: out_slots.addr_of("out_slots", &[DType::U32], rows),
        fault: shared.fault.addr(),
        kv: super::kv_layer(shared, op.kv, op.layer, op.kv_scales),
        row_stride: op.row_stride as u64,
        rotary_dim: to_u32(rotary_dim),
        num_q_heads: to_u32(op.num_q_heads),
        eps: op.eps,
        pad: 0,
    };
    let kernels = OfPool {
        bf16: Kernel::QkvPrepBf16,
        f32: Kernel::QkvPrepF32,
        bf16_f8: Kernel::QkvPrepBf16F8,
        f32_f8: Kernel::QkvPrepF32F8,
    };
    let kernel = kernels.of(dtype, op.kv.dtype);
    // A warp and a head of floats each.
    let warps = kernel.threads() as usize / 32;
    let grid = [to_u32(rows), to_u32(heads.div_ceil(warps)), 1];
    shared.launch(kernel, grid, 4 * warps * head_dim, &args)
}
