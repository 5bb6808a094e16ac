//! Whole pages between the pool and the host.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::kv::KvGroupView;

/// Copies whole pages between the pool and a host buffer laid out `[page][cut]`, for retraction.
#[derive(Debug)]
pub struct CopyPages<'a, B: DeviceTypes> {
    pub kv: &'a KvGroupView<B>,
    /// `U32 [num_pages]`.
    pub page_indices: &'a B::Buffer,
    pub num_pages: usize,
    /// The pool's dtype, `num_pages` times the sum of the cuts' page strides.
    pub host: &'a B::Buffer,
    pub direction: CopyDirection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    PoolToHost,
    HostToPool,
}

// === impl CopyPages ===

impl<B: DeviceTypes> CopyPages<'_, B> {
    /// Elements of a page in all cuts.
    pub(crate) fn page_len(&self) -> usize {
        self.kv.cuts.iter().map(|cut| cut.page_stride).sum()
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self) {
        let Self {
            kv,
            page_indices,
            num_pages,
            host,
            direction: _,
        } = *self;
        page_indices.expect_elements("copy_pages page_indices", &[DType::U32], num_pages);
        let dtypes = [kv.dtype];
        host.expect_elements("copy_pages host", &dtypes, num_pages * self.page_len());
        for cut in kv.cuts.iter() {
            let len = kv.num_pages * cut.page_stride;
            cut.region.expect_elements("KV region", &dtypes, len);
            host.expect_apart("copy_pages host", &[&cut.region]);
        }
    }
}
