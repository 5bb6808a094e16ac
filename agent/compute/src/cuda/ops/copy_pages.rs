//! Whole pages between the pool and the host.

use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{CopyPagesArgs, Kernel, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{CopyDirection, CopyPages};

pub(in crate::cuda) fn copy_pages(
    shared: &Shared,
    op: &CopyPages<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let element = op.kv.dtype.size_bytes();
    let page_elements = op.page_len();
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
