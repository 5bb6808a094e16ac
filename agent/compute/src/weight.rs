//! A weight matrix as it lies in a model file, before a backend packs it.

use crate::dtype::WeightFormat;
use crate::error::ComputeError;

/// An `n × k` matrix, rows contiguous, borrowed from a mapped file.
#[derive(Clone, Copy, Debug)]
pub struct WeightSource<'a> {
    /// The tensor's name in the file, for messages.
    pub name: &'a str,
    pub format: WeightFormat,
    /// Rows: output features of a linear, tokens of an embedding table.
    pub n: usize,
    /// Columns: input features of a linear, hidden size of an embedding table.
    pub k: usize,
    pub bytes: &'a [u8],
}

// === impl WeightSource ===

impl<'a> WeightSource<'a> {
    /// Bytes of one row, after checking that `bytes` holds exactly `n` of them.
    ///
    /// # Errors
    /// Refuses a `k` that is no whole number of blocks, and a byte length that is not `n` rows.
    pub fn row_bytes(&self) -> Result<usize, ComputeError> {
        let Self {
            name,
            format,
            n,
            k,
            bytes,
        } = *self;
        let row_bytes = format
            .row_bytes(k)
            .ok_or_else(|| ComputeError::WeightBlocks {
                name: name.to_owned(),
                format,
                k,
                block_len: format.block_len(),
            })?;
        let expected = row_bytes.saturating_mul(n);
        if expected != bytes.len() {
            return Err(ComputeError::WeightSize {
                name: name.to_owned(),
                format,
                n,
                k,
                bytes: bytes.len(),
                expected,
            });
        }
        Ok(row_bytes)
    }

    /// Row `row` as stored. The caller has checked the source with [`Self::row_bytes`].
    pub fn row(&self, row: usize, row_bytes: usize) -> &'a [u8] {
        &self.bytes[row * row_bytes..(row + 1) * row_bytes]
    }
}
