//! `Fence`: memory of ended requests that a peer, or a step in flight, may still read or write. Pages and metadata rows
//! return only when the transfer reports that nothing can touch them any more, never by a timeout, and the last step
//! over them has ended.

use super::outgoing::Outgoing;
use super::transfer::Transfer;
use crate::active::Active;
use crate::kvcache::pool::{KvCache, Quarantined, ReqKv};
use crate::step::StepId;
use pd_kv_transfer::MetadataIndexAllocator;

#[derive(Default)]
pub(crate) struct Fence {
    fenced: Vec<Fenced>,
}

struct Fenced {
    transfer: Transfer,
    pages: Option<Quarantined>,
    row: Option<u32>,
    last_step: Option<StepId>,
}

// === impl Fence ===

impl Fence {
    pub(crate) fn len(&self) -> usize {
        self.fenced.len()
    }

    /// Ends the transfer of a request without memory.
    pub(crate) fn take_transfer(&mut self, transfer: Transfer) {
        self.push(transfer, None, None, None);
    }

    /// Ends the transfer of a prefill request without pages.
    pub(crate) fn take_sender(&mut self, outgoing: Outgoing) {
        let Outgoing { sender, row, .. } = outgoing;
        self.push(sender.into(), None, Some(row), None);
    }

    /// Ends the transfer of a prefill request that was computed, at least in part.
    pub(crate) fn take_active(&mut self, active: Active<Outgoing>, cache: &mut KvCache) {
        let last_step = active.last_step();
        let Active { kv, with, .. } = active;
        let Outgoing { sender, row, .. } = with;
        let pages = cache.quarantine(kv);
        self.push(sender.into(), Some(pages), Some(row), last_step);
    }

    /// Ends the transfer of a decode request that has memory for what arrives.
    pub(crate) fn take_arriving(
        &mut self,
        transfer: Transfer,
        kv: ReqKv,
        row: u32,
        cache: &mut KvCache,
    ) {
        self.push(transfer, Some(cache.quarantine(kv)), Some(row), None);
    }

    fn push(
        &mut self,
        transfer: Transfer,
        pages: Option<Quarantined>,
        row: Option<u32>,
        last_step: Option<StepId>,
    ) {
        transfer.abort();
        self.fenced.push(Fenced {
            transfer,
            pages,
            row,
            last_step,
        });
    }

    /// Returns the memory that has been released; `ended` is the last step that has ended.
    pub(crate) fn sweep(
        &mut self,
        cache: &mut KvCache,
        metadata_rows: &mut MetadataIndexAllocator,
        ended: StepId,
    ) {
        let released = self.fenced.extract_if(.., |fenced| {
            fenced.last_step <= Some(ended) && fenced.transfer.released()
        });
        for fenced in released {
            if let Some(pages) = fenced.pages {
                cache.release(pages);
            }
            if let Some(row) = fenced.row {
                metadata_rows.free(row);
            }
        }
    }
}
