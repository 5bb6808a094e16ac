//! Rows of an embedding table.

use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{EmbedArgs, Kernel, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::Embed;

pub(in crate::cuda) fn embed(
    shared: &Shared,
    op: &Embed<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = shared.config.dtype;
    let args = EmbedArgs {
        table: op.table.table.addr(),
        token_ids: op.token_ids.addr_of("token_ids", &[DType::U32], op.rows),
        out: op.out.addr_of("embed out", &[dtype], op.rows * op.table.k),
        fault: shared.fault.addr(),
        vocab: to_u32(op.table.n),
        row_bytes: to_u32(op.table.k * dtype.size_bytes()),
        element_bytes: to_u32(dtype.size_bytes()),
        scale: op.scale.unwrap_or(1.0),
    };
    shared.launch(Kernel::Embed, [to_u32(op.rows), 1, 1], 0, &args)
}
