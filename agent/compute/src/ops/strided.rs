//! Rows that lie within wider ones.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;

/// Rows that are `row_stride` elements apart, from the first element of `values` on.
#[derive(Debug)]
pub struct Strided<'a, B: DeviceTypes> {
    pub values: &'a B::Buffer,
    pub row_stride: usize,
}

// === impl Strided ===

impl<B: DeviceTypes> Clone for Strided<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: DeviceTypes> Copy for Strided<'_, B> {}

impl<B: DeviceTypes> Strided<'_, B> {
    /// Elements of `rows` rows of `row_len`, up to the last row's last.
    pub(crate) fn len(&self, rows: usize, row_len: usize) -> usize {
        let before = rows.checked_sub(1);
        before.map_or(0, |before| before * self.row_stride + row_len)
    }

    /// # Panics
    /// When it does not hold `rows` rows of `row_len` elements of `dtype`.
    pub(crate) fn expect_rows(&self, what: &str, dtype: DType, rows: usize, row_len: usize) {
        assert!(
            self.row_stride >= row_len,
            "{what}: rows of {row_len} elements, {} apart",
            self.row_stride
        );
        let len = self.len(rows, row_len);
        self.values.expect_elements(what, &[dtype], len);
    }
}
