//! A product of each head with a matrix of its own.

use crate::buffer::DeviceBuffer;
use crate::device_types::{DeviceTypes, Matrix};
use crate::dtype::DType;

/// `out[row][head] = x[row][head] · W[head]ᵀ`.
#[derive(Debug)]
pub struct HeadLinear<'a, B: DeviceTypes> {
    /// `k` elements of each head.
    pub x: HeadRows<'a, B>,
    /// Packed of a part for each head, all of the same number of rows.
    pub weight: &'a B::Weight,
    pub heads: usize,
    /// `n / heads` elements of each head; what lies between them stays.
    pub out: HeadRows<'a, B>,
    pub rows: usize,
}

/// `[rows][heads][head_stride]`, of which the first elements of each head count.
#[derive(Debug)]
pub struct HeadRows<'a, B: DeviceTypes> {
    pub values: &'a B::Buffer,
    /// Elements from a head to the next.
    pub head_stride: usize,
}

// === impl HeadRows ===

impl<B: DeviceTypes> Clone for HeadRows<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: DeviceTypes> Copy for HeadRows<'_, B> {}

impl<B: DeviceTypes> HeadRows<'_, B> {
    fn expect(&self, what: &str, dtype: DType, heads: usize, head_len: usize) {
        let head_stride = self.head_stride;
        assert!(
            head_stride >= head_len,
            "{what}: heads of {head_len} elements, {head_stride} apart"
        );
        self.values
            .expect_elements(what, &[dtype], heads * head_stride);
    }
}

// === impl HeadLinear ===

impl<B: DeviceTypes> HeadLinear<'_, B> {
    /// Outputs of a head.
    pub(crate) fn out_len(&self) -> usize {
        self.weight.n() / self.heads
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be, or the weight's rows are not those
    /// of the heads.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            x,
            weight,
            heads,
            out,
            rows,
        } = *self;
        assert!(
            heads > 0 && weight.n().is_multiple_of(heads),
            "head_linear: {} rows of {heads} heads",
            weight.n()
        );
        x.expect("head_linear x", activations, rows * heads, weight.k());
        out.expect("head_linear out", activations, rows * heads, self.out_len());
        out.values.expect_apart("head_linear out", &[x.values]);
    }
}
