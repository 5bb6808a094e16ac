//! Chosen rows of a buffer.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;

/// A `gather_rows` index whose output row stays as it is.
pub const NO_ROW: u32 = u32::MAX;

/// `out[r] = src[indices[r]]`; an index of [`NO_ROW`] leaves its row. Any dtype, the same on both
/// sides: hidden rows that need logits, or sampled tokens that become the next step's ids.
#[derive(Debug)]
pub struct GatherRows<'a, B: DeviceTypes> {
    pub src: &'a B::Buffer,
    /// `U32 [rows]`.
    pub indices: &'a B::Buffer,
    /// Shares no memory with `src`.
    pub out: &'a B::Buffer,
    pub row_len: usize,
    pub rows: usize,
}

// === impl GatherRows ===

impl<B: DeviceTypes> GatherRows<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self) {
        let Self {
            src,
            indices,
            out,
            row_len,
            rows,
        } = *self;
        indices.expect_elements("gather_rows indices", &[DType::U32], rows);
        out.expect_elements("gather_rows out", &[src.dtype()], rows * row_len);
        out.expect_apart("gather_rows out", &[src, indices]);
    }
}
