//! Embedding, gathered rows, pages between the pool and the host.

use super::super::backend::{CudaBackend, Shared};
use super::super::driver::DriverError;
use super::super::kernels::{CopyPagesArgs, EmbedArgs, GatherRowsArgs, Kernel, to_u32};
use crate::buffer::DeviceBuffer;
use crate::dtype::DType;
use crate::ops::{CopyDirection, CopyPages, Embed, GatherRows};

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
    };
    shared.launch(Kernel::Embed, [to_u32(op.rows), 1, 1], 0, &args)
}

pub(in crate::cuda) fn gather_rows(
    shared: &Shared,
    op: &GatherRows<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = op.src.dtype();
    assert!(
        !op.out.overlaps(op.src) && !op.out.overlaps(op.indices),
        "gather_rows: out overlaps"
    );
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

pub(in crate::cuda) fn copy_pages(
    shared: &Shared,
    op: &CopyPages<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let element = op.kv.dtype.size_bytes();
    let page_elements: usize = op.kv.cuts.iter().map(|cut| cut.page_stride).sum();
    assert!(
        op.host.is_pinned(),
        "copy_pages: {:?} is not from alloc_host",
        op.host
    );
    let len = op.num_pages * page_elements;
    let host = op.host.addr_of("copy_pages host", &[op.kv.dtype], len);
    let indices = op.page_indices;
    let mut offset = 0;
    for cut in op.kv.cuts.iter() {
        let len = op.kv.num_pages * cut.page_stride;
        let args = CopyPagesArgs {
            pool: cut.region.addr_of("KV region", &[op.kv.dtype], len),
            host,
            page_indices: indices.addr_of("page_indices", &[DType::U32], op.num_pages),
            fault: shared.fault.addr(),
            cut_page_bytes: (cut.page_stride * element) as u64,
            host_page_bytes: (page_elements * element) as u64,
            host_offset_bytes: (offset * element) as u64,
            num_pool_pages: to_u32(op.kv.num_pages),
            to_host: u32::from(op.direction == CopyDirection::PoolToHost),
        };
        shared.launch(Kernel::CopyPages, [to_u32(op.num_pages), 1, 1], 0, &args)?;
        offset += cut.page_stride;
    }
    Ok(())
}
