//! Tensors where they lie in mapped files.

use pd_compute::WeightFormat;
use std::fmt;

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

/// What a file's header says of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorShape {
    pub dtype: String,
    pub rows: usize,
    pub columns: usize,
}

// === impl TensorShape ===

impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            dtype,
            rows,
            columns,
        } = self;
        write!(f, "{dtype} of {rows}×{columns}")
    }
}
