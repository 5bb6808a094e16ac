//! Embedding tables, kept as they are stored and expanded row by row.

use crate::device_types::Matrix;
use crate::dtype::WeightFormat;
use crate::error::ComputeError;
use crate::weight::WeightSource;
use std::sync::Arc;

/// An `n × k` table in the file's format.
#[derive(Clone, Debug)]
pub struct CpuEmbedding {
    bytes: Arc<[u8]>,
    scales: Arc<[f32]>,
    format: WeightFormat,
    n: usize,
    k: usize,
}

// === impl CpuEmbedding ===

impl CpuEmbedding {
    pub(super) fn pack(table: &WeightSource<'_>) -> Result<Self, ComputeError> {
        table.row_bytes()?;
        let WeightSource {
            name: _,
            format,
            n,
            k,
            bytes,
            scales,
        } = *table;
        Ok(Self {
            bytes: bytes.into(),
            scales: scales.into(),
            format,
            n,
            k,
        })
    }

    /// Expands the row of a token.
    pub(super) fn expand(&self, token: u32, out: &mut [f32]) {
        let row = token as usize;
        assert!(
            row < self.n,
            "token id {token} is beyond the vocabulary of {}",
            self.n
        );
        let table = WeightSource {
            name: "embedding",
            format: self.format,
            n: self.n,
            k: self.k,
            bytes: &self.bytes,
            scales: &self.scales,
        };
        table.row(row).expand(out);
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
