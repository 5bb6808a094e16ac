//! Copies: chosen rows of a buffer, and whole pages between the pool and a host buffer.

use super::backend::CpuBackend;
use super::queue::Exec;
use crate::buffer::DeviceBuffer;
use crate::ops::{CopyDirection, CopyPages, GatherRows, NO_ROW};

pub(super) fn gather_rows(op: GatherRows<'_, CpuBackend>) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let GatherRows {
        src,
        indices,
        out,
        row_len,
        rows,
    } = op;
    assert!(
        src.dtype() == out.dtype(),
        "gather_rows from {src:?} to {out:?}"
    );
    assert!(
        !out.overlaps(src) && !out.overlaps(indices),
        "gather_rows: out overlaps"
    );
    assert!(
        out.len() >= rows * row_len,
        "gather_rows: {rows} rows of {row_len} exceed {out:?}"
    );
    let row_bytes = row_len * src.dtype().size_bytes();
    let (src, out) = (src.src_bytes(), out.dst_bytes());
    let indices = indices.src::<u32>("gather_rows indices", rows);
    move |exec| {
        // SAFETY: on the queue; `out` is other memory.
        let (src, indices) = unsafe { (src.slice(), indices.slice()) };
        exec.run_rows(rows, row_len, |range| {
            for r in range.filter(|r| indices[*r] != NO_ROW) {
                let from = indices[r] as usize * row_bytes;
                let row = src.get(from..from + row_bytes);
                let row = row.unwrap_or_else(|| panic!("row {} is beyond src", indices[r]));
                // SAFETY: on the queue; each row belongs to one task.
                unsafe { out.slice_mut(r * row_bytes..(r + 1) * row_bytes) }.copy_from_slice(row);
            }
        });
    }
}

pub(super) fn copy_pages(op: CopyPages<'_, CpuBackend>) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let CopyPages {
        kv,
        page_indices,
        num_pages,
        host,
        direction,
    } = op;
    assert!(
        host.dtype() == kv.dtype,
        "copy_pages: {host:?} beside a pool of {:?}",
        kv.dtype
    );
    let element = kv.dtype.size_bytes();
    let pool_pages = kv.num_pages;
    let mut cuts = Vec::with_capacity(kv.cuts.len());
    for cut in kv.cuts.iter() {
        assert!(
            !cut.region.overlaps(host),
            "copy_pages: host is part of the pool"
        );
        assert!(
            cut.region.len() >= pool_pages * cut.page_stride,
            "copy_pages: region too small"
        );
        cuts.push((cut.region.dst_bytes(), cut.page_stride * element));
    }
    let page_bytes: usize = cuts.iter().map(|(_, bytes)| bytes).sum();
    assert!(
        host.size_bytes() >= num_pages * page_bytes,
        "copy_pages: {host:?} is too small"
    );
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
