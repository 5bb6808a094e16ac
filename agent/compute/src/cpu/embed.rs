//! Embedding tables, kept as they are stored and expanded row by row.

use super::backend::CpuBackend;
use super::queue::Exec;
use crate::dtype::WeightFormat;
use crate::error::ComputeError;
use crate::ops::Embed;
use crate::quant::dequantize;
use crate::sampling::NO_TOKEN;
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

pub(super) fn embed(op: Embed<'_, CpuBackend>) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let Embed {
        table,
        token_ids,
        out,
        rows,
    } = op;
    let table = table.clone();
    assert!(
        !out.overlaps(token_ids),
        "embed: out shares memory with token_ids"
    );
    let token_ids = token_ids.src::<u32>("token_ids", rows);
    let out = out.dst::<f32>("embed out", rows * table.k);
    move |exec| {
        // SAFETY: on the queue; `out` is other memory.
        let token_ids = unsafe { token_ids.slice() };
        exec.run_rows(rows, table.k, |range| {
            for r in range {
                // SAFETY: on the queue; each row belongs to one task.
                let row = unsafe { out.slice_mut(r * table.k..(r + 1) * table.k) };
                match token_ids[r] {
                    NO_TOKEN => row.fill(0.0),
                    token => dequantize(table.format, table.row(token), row),
                }
            }
        });
    }
}
