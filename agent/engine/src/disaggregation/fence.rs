//! `Fence`: memory of ended requests that a peer may still read or write. Pages and metadata rows
//! return only when the transfer reports that nothing can touch them any more, never by a timeout.

use crate::kvcache::pool::{KvCache, Quarantined};
use crate::req::{Req, Transfer};
use pd_kv_transfer::MetadataIndexAllocator;

#[derive(Default)]
pub(crate) struct Fence {
    fenced: Vec<Fenced>,
}

struct Fenced {
    transfer: Transfer,
    pages: Option<Quarantined>,
    metadata_buffer_index: Option<u32>,
}

// === impl Fence ===

impl Fence {
    pub(crate) fn len(&self) -> usize {
        self.fenced.len()
    }

    /// Takes everything that a transfer may touch from an ended request, and ends the transfer.
    pub(crate) fn take(&mut self, req: &mut Req, cache: &mut KvCache) {
        let transfer = std::mem::take(&mut req.transfer);
        transfer.abort();
        self.fenced.push(Fenced {
            transfer,
            pages: req.kv.take().map(|kv| cache.quarantine(kv)),
            metadata_buffer_index: req.metadata_buffer_index.take(),
        });
    }

    /// Returns the memory that has been released.
    pub(crate) fn sweep(
        &mut self,
        cache: &mut KvCache,
        metadata_rows: &mut MetadataIndexAllocator,
    ) {
        let released = self
            .fenced
            .extract_if(.., |fenced| fenced.transfer.released());
        for fenced in released {
            if let Some(pages) = fenced.pages {
                cache.release(pages);
            }
            if let Some(index) = fenced.metadata_buffer_index {
                metadata_rows.free(index);
            }
        }
    }
}
