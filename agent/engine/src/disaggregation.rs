//! Prefill and decode in separate engines. Each mode is a type with the queues of its side; the
//! header of each queue's file describes the life of a request. Both share the KV manager, the
//! metadata rows, and the fence that holds an ended request's memory until no peer can touch it
//! (ARCHITECTURE.md, invariant 10).

pub(crate) mod decode;
pub(crate) mod decode_prealloc_queue;
pub(crate) mod decode_transfer_queue;
pub(crate) mod fence;
pub(crate) mod prefill;
pub(crate) mod prefill_bootstrap_queue;
pub(crate) mod prefill_inflight_queue;
pub(crate) mod start;

use pd_kv_transfer::{KvManager, MetadataBuffers, MetadataIndexAllocator};

/// This rank's end of all transfers.
pub(crate) struct TransferEnd {
    pub(crate) manager: KvManager,
    pub(crate) metadata: MetadataBuffers,
    pub(crate) metadata_rows: MetadataIndexAllocator,
}

impl TransferEnd {
    pub(crate) fn rows_used(&self) -> usize {
        self.metadata_rows.total() as usize - self.metadata_rows.available()
    }
}
