//! Pages to the host and back.

use super::attention::KvShape;
use super::{Subject, rounded, values};
use pd_compute::{Backend, CopyDirection, CopyPages, DType};

/// Copies pages 3 and 1 out, overwrites the pool, and copies them back to pages 0 and 2: the pool
/// after it.
pub fn there_and_back<B: Backend>(subject: &Subject<B>, shape: &KvShape, dtype: DType) -> Vec<f32> {
    let kv = shape.pool(subject, dtype);
    let region = &kv.cuts[0].region;
    let len = shape.num_pages * kv.cuts[0].page_stride;
    subject.write(region, &rounded(dtype, values(1, len)));
    let host = subject
        .backend
        .alloc_host("host", dtype, 2 * kv.cuts[0].page_stride)
        .expect("it fits");
    let copy = |pages: &[u32], direction| {
        subject.backend.copy_pages(CopyPages {
            kv: &kv,
            page_indices: &subject.words(pages),
            num_pages: pages.len(),
            host: &host,
            direction,
        });
    };
    copy(&[3, 1], CopyDirection::PoolToHost);
    subject.write(region, &rounded(dtype, values(2, len)));
    copy(&[0, 2], CopyDirection::HostToPool);
    subject.read(region)
}
