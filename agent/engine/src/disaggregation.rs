//! Prefill and decode in separate engines: their queues, whose headers describe the life of a request there, the
//! transfer that moves KV between them, the metadata rows, and the fence that holds an ended request's memory until
//! no peer can touch it (ARCHITECTURE.md, invariant 10). The modes of `mode` move requests through the queues.

pub(crate) mod decode_prealloc_queue;
pub(crate) mod decode_transfer_queue;
pub(crate) mod fence;
pub(crate) mod headroom;
pub(crate) mod outgoing;
pub(crate) mod prefill_bootstrap_queue;
pub(crate) mod prefill_inflight_queue;
pub(crate) mod start;
pub(crate) mod transfer;

use crate::kvcache::pool::{KvCache, ReqKv};
use pd_kv_transfer::{KvManager, MetadataBuffers, MetadataIndexAllocator};
use pd_protocol::layout::StateType;

/// This rank's end of all transfers.
pub(crate) struct TransferEnd {
    pub(crate) manager: KvManager,
    pub(crate) metadata: MetadataBuffers,
    pub(crate) metadata_rows: MetadataIndexAllocator,
    /// Of what is beside pages, in the order of the layout.
    states: Vec<StateType>,
}

// === impl TransferEnd ===

impl TransferEnd {
    /// What is sent of each state for a request: the slot that it works in, or the pages of its last window.
    pub(crate) fn state_indices(&self, cache: &KvCache, kv: &ReqKv) -> Vec<Vec<u32>> {
        let slot = || kv.slot().expect("a model with state regions has slots").0;
        let indices = |state: &StateType| match state {
            StateType::Mamba => vec![slot()],
            StateType::Swa => cache.window_page_ids(kv),
            StateType::Nsa => unreachable!("no pool of this engine has an index"),
        };
        self.states.iter().map(indices).collect()
    }

    pub(crate) fn rows_used(&self) -> usize {
        self.metadata_rows.total() as usize - self.metadata_rows.available()
    }
}
