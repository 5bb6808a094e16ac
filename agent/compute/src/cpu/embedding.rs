//! Embedding tables, kept as they are stored and expanded row by row.

use crate::device_types::Matrix;
use crate::dtype::WeightFormat;
use crate::error::ComputeError;
use crate::quant::dequantize;
use crate::weight::WeightSource;
use std::sync::Arc;

/// An `n × k` table in the file's format.
#[derive(Clone, Debug)]
pub struct CpuEmbedding {
    bytes: Arc<[u8]>,
    format: WeightFormat,
    row_bytes: usize,
    n: usize,
    k: usize,
}

// === impl CpuEmbedding ===

impl CpuEmbedding {
    pub(super) fn pack(table: &WeightSource<'_>) -> Result<Self, ComputeError> {
        let row_bytes = table.row_bytes()?;
        let WeightSource {
            name: _,
            format,
            n,
            k,
            bytes,
        } = *table;
        Ok(Self {
            bytes: bytes.into(),
            format,
            row_bytes,
            n,
            k,
        })
    }

    /// Expands the row of a token.
    pub(super) fn expand(&self, token: u32, out: &mut [f32]) {
        dequantize(self.format, self.row(token), out);
    }

    fn row(&self, token: u32) -> &[u8] {
        let row = token as usize;
        assert!(
            row < self.n,
            "token id {token} is beyond the vocabulary of {}",
            self.n
        );
        &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes]
    }
}

impl Matrix for CpuEmbedding {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }
}
