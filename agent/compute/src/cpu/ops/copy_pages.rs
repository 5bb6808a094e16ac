//! Whole pages between the pool and a host buffer.

use super::copied::{Copied, expect_distinct};
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::ops::CopyPages;

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
        let copied = Copied::new(&cut.region, host, direction);
        cuts.push((copied, cut.page_stride * element));
    }
    let page_bytes: usize = cuts.iter().map(|(_, bytes)| bytes).sum();
    let page_indices = page_indices.src::<u32>("page_indices", num_pages);
    move |exec| {
        // SAFETY: on the queue; the indices are not written.
        let page_indices = unsafe { page_indices.slice() };
        expect_distinct("page", page_indices, direction);
        exec.run_rows(num_pages, page_bytes / element, |range| {
            for i in range {
                let page = page_indices[i] as usize;
                assert!(
                    page < pool_pages,
                    "page {page} is beyond the pool of {pool_pages}"
                );
                let mut at = i * page_bytes;
                for (copied, bytes) in &cuts {
                    // SAFETY: on the queue; pages that are written are distinct, and each place in `host` belongs to
                    // one task.
                    unsafe { copied.copy(page * bytes..(page + 1) * bytes, at..at + bytes) };
                    at += bytes;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
