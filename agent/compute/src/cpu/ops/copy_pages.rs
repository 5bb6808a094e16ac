//! Whole pages between the pool and a host buffer.

use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::ops::{CopyDirection, CopyPages};

pub(in crate::cpu) fn copy_pages(
    op: CopyPages<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let CopyPages {
        kv,
        page_indices,
        num_pages,
        host,
        direction,
    } = op;
    let element = kv.dtype.size_bytes();
    let pool_pages = kv.num_pages;
    let mut cuts = Vec::with_capacity(kv.cuts.len());
    for cut in kv.cuts.iter() {
        cuts.push((cut.region.dst_bytes(), cut.page_stride * element));
    }
    let page_bytes: usize = cuts.iter().map(|(_, bytes)| bytes).sum();
    let host = host.dst_bytes();
    let page_indices = page_indices.src::<u32>("page_indices", num_pages);
    move |exec| {
        // SAFETY: on the queue; the indices are not written.
        let page_indices = unsafe { page_indices.slice() };
        exec.run_rows(num_pages, page_bytes / element, |range| {
            for i in range {
                let page = page_indices[i] as usize;
                assert!(
                    page < pool_pages,
                    "page {page} is beyond the pool of {pool_pages}"
                );
                let mut at = i * page_bytes;
                for (region, bytes) in &cuts {
                    // SAFETY: on the queue; the owner of the pages gives each index once, and each
                    // place in `host` belongs to one task.
                    let (pool, host) = unsafe {
                        let pool = region.slice_mut(page * bytes..(page + 1) * bytes);
                        (pool, host.slice_mut(at..at + bytes))
                    };
                    match direction {
                        CopyDirection::PoolToHost => host.copy_from_slice(pool),
                        CopyDirection::HostToPool => pool.copy_from_slice(host),
                    }
                    at += bytes;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
