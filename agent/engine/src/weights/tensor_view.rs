//! Tensors where they lie in mapped files.

use pd_compute::WeightFormat;

/// A tensor in a mapped file. A vector has one row.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a, F = WeightFormat> {
    pub name: &'a str,
    /// Of the values; nothing for bytes.
    pub format: F,
    pub rows: usize,
    pub columns: usize,
    pub bytes: &'a [u8],
}
