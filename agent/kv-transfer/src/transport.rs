//! How bytes travel, by direction: `rdma` and `tcp` push from prefill into decode's memory, `shm` lets
//! decode pull from prefill's. A fake room has no destination at all: its side ends it by itself.

pub(crate) mod negotiate;
pub(crate) mod rdma;
pub(crate) mod shm;
pub(crate) mod tcp;

use crate::plan::Tail;
use std::sync::Arc;

/// Items of each state, and the metadata row, of one side of a room.
#[derive(Clone, Debug)]
pub(crate) struct OwnedTail {
    pub(crate) state_indices: Arc<[Vec<u32>]>,
    pub(crate) metadata_buffer_index: u32,
}

impl OwnedTail {
    pub(crate) fn as_tail(&self) -> Tail<'_> {
        Tail {
            state_indices: &self.state_indices,
            metadata_buffer_index: self.metadata_buffer_index,
        }
    }
}
