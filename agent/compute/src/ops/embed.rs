//! Embedding rows by token id.

use crate::buffer::DeviceBuffer;
use crate::device_types::{DeviceTypes, Matrix};
use crate::dtype::DType;

/// `out[r] = table[token_ids[r]]`; zeros for [`NO_TOKEN`](crate::sampling::NO_TOKEN), which a step that is
/// launched ahead may be given by the one before it.
#[derive(Debug)]
pub struct Embed<'a, B: DeviceTypes> {
    pub table: &'a B::Embedding,
    /// `U32 [rows]`.
    pub token_ids: &'a B::Buffer,
    /// `[rows][hidden]`.
    pub out: &'a B::Buffer,
    /// Multiplies every element. A model that computes in a narrow dtype rounds it to that first.
    pub scale: Option<f32>,
    pub rows: usize,
}

// === impl Embed ===

impl<B: DeviceTypes> Embed<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            table,
            token_ids,
            out,
            scale: _,
            rows,
        } = *self;
        token_ids.expect_elements("embed token_ids", &[DType::U32], rows);
        out.expect_elements("embed out", &[activations], rows * table.k());
        out.expect_apart("embed out", &[token_ids]);
    }
}
