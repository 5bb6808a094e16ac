//! A weight matrix as it lies in a model file, before a backend packs it.

use crate::dtype::WeightFormat;
use crate::error::ComputeError;
use crate::quant::dequantize;
use std::ops::Range;

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
    /// `[n][k / scale_len, rounded up]` of F8E4M3; none of other formats, whose scales lie in the bytes.
    pub scales: &'a [f32],
}

/// Some values of a row, as stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRow<'a> {
    pub(crate) format: WeightFormat,
    pub(crate) bytes: &'a [u8],
    /// Of the whole row.
    pub(crate) scales: &'a [f32],
    /// Values of the row before these.
    first: usize,
}

// === impl WeightSource ===

impl<'a> WeightSource<'a> {
    /// An `n × k` matrix without scales beside its bytes.
    pub const fn unscaled(
        name: &'a str,
        format: WeightFormat,
        (n, k): (usize, usize),
        bytes: &'a [u8],
    ) -> Self {
        Self {
            name,
            format,
            n,
            k,
            bytes,
            scales: &[],
        }
    }

    /// Bytes of one row, after checking that `bytes` holds exactly `n` of them, and `scales` those of the rows.
    ///
    /// # Errors
    /// Refuses a `k` that is no whole number of blocks, and a length that is not `n` rows.
    pub fn row_bytes(&self) -> Result<usize, ComputeError> {
        let Self {
            name,
            format,
            n,
            k,
            bytes,
            scales,
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
        let expected = format.scales_per_row(k).saturating_mul(n);
        if expected != scales.len() {
            return Err(ComputeError::WeightShape {
                name: name.to_owned(),
                reason: format!(
                    "has {} scales, where {n}×{k} of {format:?} have {expected}",
                    scales.len()
                ),
            });
        }
        Ok(row_bytes)
    }

    /// Row `row`. The caller has checked the source with [`Self::row_bytes`].
    pub(crate) fn row(&self, row: usize) -> StoredRow<'a> {
        let row_bytes = self.bytes.len() / self.n;
        let scales = self.scales.len() / self.n;
        StoredRow {
            format: self.format,
            bytes: &self.bytes[row * row_bytes..(row + 1) * row_bytes],
            scales: &self.scales[row * scales..(row + 1) * scales],
            first: 0,
        }
    }
}

// === impl StoredRow ===

impl StoredRow<'_> {
    /// Those at `ks`, which are whole blocks.
    pub(crate) fn part(&self, ks: &Range<usize>) -> Self {
        let at = |k: usize| k / self.format.block_len() * self.format.block_bytes();
        Self {
            bytes: &self.bytes[at(ks.start)..at(ks.end)],
            first: self.first + ks.start,
            ..*self
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.format.block_bytes() * self.format.block_len()
    }

    /// Writes the values, rounded to f32 once.
    ///
    /// # Panics
    /// When `out` has another length.
    pub(crate) fn expand(&self, out: &mut [f32]) {
        dequantize(self.format, self.bytes, out);
        if let WeightFormat::F8E4M3 { scale_len } = self.format {
            for (k, value) in (self.first..).zip(out) {
                *value *= self.scales[k / scale_len];
            }
        }
    }
}

#[cfg(test)]
mod tests;
