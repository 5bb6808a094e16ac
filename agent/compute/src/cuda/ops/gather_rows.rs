//! Rows copied by index.

use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{GatherRowsArgs, Kernel, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::GatherRows;

pub(in crate::cuda) fn gather_rows(
    shared: &Shared,
    op: &GatherRows<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = op.src.dtype();
    assert!(
        dtype.size_bytes() > 1,
        "gather_rows: rows of {dtype:?} are not copied"
    );
    let args = GatherRowsArgs {
        src: op.src.addr(),
        indices: op
            .indices
            .addr_of("gather_rows indices", &[DType::U32], op.rows),
        out: op
            .out
            .addr_of("gather_rows out", &[dtype], op.rows * op.row_len),
        fault: shared.fault.addr(),
        row_bytes: (op.row_len * dtype.size_bytes()) as u64,
        src_rows: to_u32(op.src.len() / op.row_len.max(1)),
        pad: 0,
    };
    shared.launch(Kernel::GatherRows, [to_u32(op.rows), 1, 1], 0, &args)
}
