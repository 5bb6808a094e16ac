//! A product of each head with a matrix of its own: the linear's kernels, a head after another in the grid.

use super::linear;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{
    FEW_8X16, FEW_32X32, HeadLinearArgs, Kernel, LINEAR_ROWS_F32, LinearArgs, to_u32,
};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{Epilogue, HeadLinear};

pub(in crate::cuda) fn head_linear(
    shared: &Shared,
    op: &HeadLinear<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (dtype, rows, heads) = (shared.config.dtype, op.rows, op.heads);
    let (n, k) = (op.out_len(), op.weight.k);
    let (x_stride, out_stride) = (op.x.head_stride, op.out.head_stride);
    let x_len = rows * heads * x_stride;
    let out_len = rows * heads * out_stride;
    assert!(
        dtype == DType::F32 || x_stride.is_multiple_of(8),
        "head_linear: heads of x {x_stride} apart are not aligned to 8"
    );
    let args = HeadLinearArgs {
        product: LinearArgs {
            x: op.x.values.addr_of("head_linear x", &[dtype], x_len),
            weight: op.weight.weight.addr(),
            out: op.out.values.addr_of("head_linear out", &[dtype], out_len),
            rows: to_u32(rows),
            ..linear::shape_args(Epilogue::Store, n, k)
        },
        x_head_stride: x_stride as u64,
        out_head_stride: out_stride as u64,
        heads: to_u32(heads),
        pad: 0,
    };
    if dtype == DType::F32 {
        let grid = [
            to_u32(n.div_ceil(linear::columns_f32())),
            to_u32(rows.div_ceil(LINEAR_ROWS_F32)),
            to_u32(heads),
        ];
        return shared.launch(Kernel::HeadLinearFullF32, grid, 0, &args);
    }
    let (kernel, tile) = if rows <= FEW_8X16.rows {
        (Kernel::HeadLinear8x16Bf16, FEW_8X16)
    } else {
        (Kernel::HeadLinear32x32Bf16, FEW_32X32)
    };
    let grid = [
        to_u32(rows.div_ceil(tile.rows)),
        to_u32(n.div_ceil(tile.columns)),
        to_u32(heads),
    ];
    shared.launch(kernel, grid, linear::few_rows_bytes(&tile, k), &args)
}
