//! What a mixture of experts adds to the residual stream: a thread for each element.

use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{Kernel, MOE_COLUMNS, MoeFinishArgs, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::MoeFinish;

pub(in crate::cuda) fn moe_finish(
    shared: &Shared,
    op: &MoeFinish<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (dtype, rows, hidden) = (shared.config.dtype, op.rows, op.hidden);
    let len = rows * hidden;
    let beside = op.shared.as_ref();
    let gate = beside.and_then(|beside| beside.gate);
    let args = MoeFinishArgs {
        sums: op.sums.addr_of("moe_finish sums", &[dtype], len),
        shared: beside.map_or(0, |beside| {
            beside.values.addr_of("moe_finish shared", &[dtype], len)
        }),
        gate: gate.map_or(0, |gate| {
            gate.addr_of("moe_finish gate", &[DType::F32], rows)
        }),
        x: op.x.addr_of("moe_finish x", &[dtype], len),
        hidden: to_u32(hidden),
        pad: 0,
    };
    let kernel = if dtype == DType::F32 {
        Kernel::MoeFinishF32
    } else {
        Kernel::MoeFinishBf16
    };
    let grid = [to_u32(hidden.div_ceil(MOE_COLUMNS)), to_u32(rows), 1];
    shared.launch(kernel, grid, 0, &args)
}
