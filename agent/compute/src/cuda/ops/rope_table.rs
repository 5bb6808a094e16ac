//! Cosines and sines of a step's positions.

use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{Kernel, RopeTableArgs, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::RopeTable;

pub(in crate::cuda) fn rope_table(
    shared: &Shared,
    op: &RopeTable<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (rows, half) = (op.rows, op.inv_freq.len());
    let args = RopeTableArgs {
        positions: op.positions.addr_of("positions", &[DType::U32], rows),
        inv_freq: op.inv_freq.addr_of("inv_freq", &[DType::F32], half),
        out: op
            .out
            .addr_of("rope_table out", &[DType::F32], rows * 2 * half),
        rows: to_u32(rows),
        half: to_u32(half),
        factor: op.factor,
        pad: 0,
    };
    let blocks = (rows * half).div_ceil(Kernel::RopeTable.threads() as usize);
    shared.launch(Kernel::RopeTable, [to_u32(blocks), 1, 1], 0, &args)
}
