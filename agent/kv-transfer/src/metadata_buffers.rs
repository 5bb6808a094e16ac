//! `MetadataBuffers`: the rows that carry a request's first token from prefill to decode, and
//! which of them are free. Prefill writes a row before its last chunk. Decode empties its row before it offers
//! it, and reads it twice: before `Success`, which needs the row to be the room's, and in the engine after
//! that. Both sides hold the row until the room's fence is released.

use crate::memory::{Region, RegionError};
use pd_protocol::BootstrapRoom;
use pd_protocol::metadata::{MetadataError, MetadataLayout, MetadataRow};

/// Rows of one rank in shareable memory.
#[derive(Clone, Debug)]
pub struct MetadataBuffers {
    layout: MetadataLayout,
    rows: u32,
    region: Region,
}

/// Why a row cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum MetadataBuffersError {
    #[error(transparent)]
    Row(#[from] MetadataError),
    #[error("metadata_buffer_index: {0}")]
    Index(#[from] RegionError),
}

/// Which rows are free; SGLang's `ReqToMetadataIdxAllocator`.
#[derive(Debug)]
pub struct MetadataIndexAllocator {
    free: Vec<u32>,
    total: u32,
}

// === impl MetadataBuffers ===

impl MetadataBuffers {
    /// `rows` empty rows. Source: docs/sglang-protocol.md#metadata.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn allocate(layout: MetadataLayout, rows: u32) -> Result<Self, RegionError> {
        let len = layout.row_bytes() * rows.max(1) as usize;
        let region = Region::allocate("pd-metadata", len)?;
        Ok(Self {
            layout,
            rows,
            region,
        })
    }

    pub fn layout(&self) -> MetadataLayout {
        self.layout
    }

    pub fn rows(&self) -> u32 {
        self.rows
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn offset(&self, metadata_buffer_index: u32) -> u64 {
        u64::from(metadata_buffer_index) * self.layout.row_bytes() as u64
    }

    /// Prefill: fills a row.
    ///
    /// # Errors
    /// A list is longer than its field, or there is no such row.
    pub fn write_row(
        &self,
        metadata_buffer_index: u32,
        row: &MetadataRow,
    ) -> Result<(), MetadataBuffersError> {
        let bytes = row.encode(&self.layout)?;
        Ok(self
            .region
            .write(self.offset(metadata_buffer_index), &bytes)?)
    }

    /// Decode: the row of `room`.
    ///
    /// # Errors
    /// The row has not arrived, or is another room's: the transfer is corrupt.
    pub fn read_row(
        &self,
        metadata_buffer_index: u32,
        room: BootstrapRoom,
    ) -> Result<MetadataRow, MetadataBuffersError> {
        let mut bytes = vec![0; self.layout.row_bytes()];
        self.region
            .read(self.offset(metadata_buffer_index), &mut bytes)?;
        Ok(MetadataRow::decode(&self.layout, &bytes, room)?)
    }

    /// Decode: empties a row before it is offered to a peer, so that an old room is never read.
    ///
    /// # Errors
    /// There is no such row.
    pub fn clear_row(&self, metadata_buffer_index: u32) -> Result<(), MetadataBuffersError> {
        let bytes = vec![0; self.layout.row_bytes()];
        Ok(self
            .region
            .write(self.offset(metadata_buffer_index), &bytes)?)
    }
}

// === impl MetadataIndexAllocator ===

impl MetadataIndexAllocator {
    pub fn new(rows: u32) -> Self {
        Self {
            free: (0..rows).rev().collect(),
            total: rows,
        }
    }

    pub fn alloc(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// # Panics
    /// The row is free already or does not exist: rows are conserved.
    pub fn free(&mut self, metadata_buffer_index: u32) {
        assert!(
            metadata_buffer_index < self.total && !self.free.contains(&metadata_buffer_index),
            "metadata row {metadata_buffer_index} was not in use"
        );
        self.free.push(metadata_buffer_index);
    }

    pub fn available(&self) -> usize {
        self.free.len()
    }

    pub fn total(&self) -> u32 {
        self.total
    }
}

#[cfg(test)]
mod tests;
