//! Whole pages between the pool and the host.

use crate::ops::{CopyDirection, CopyPages};
use crate::tch::handle::TchBackend;
use crate::tch::memory::index_tensor;

pub(in crate::tch) fn copy_pages(op: CopyPages<'_, TchBackend>) -> Result<(), String> {
    let row_len = op.page_len();
    let CopyPages {
        kv,
        page_indices,
        num_pages,
        host,
        direction,
    } = op;
    let indices = page_indices.words("page_indices", num_pages)?;
    let mut column = 0;
    for cut in kv.cuts.iter() {
        let device = cut.region.device();
        let pages = index_tensor(&indices, "page", "the pool", kv.num_pages, device)?;
        let mut region = cut.region.view("region", [kv.num_pages, cut.page_stride]);
        let mut host = host.strided("host", column, [num_pages, cut.page_stride], [row_len, 1]);
        match direction {
            CopyDirection::PoolToHost => host.copy_(&region.index_select(0, &pages)),
            CopyDirection::HostToPool => {
                let _ = region.index_copy_(0, &pages, &host.to_device(device));
            }
        }
        column += cut.page_stride;
    }
    Ok(())
}
