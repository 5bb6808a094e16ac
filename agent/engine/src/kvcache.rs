//! Bookkeeping of KV: the owner of each page and state slot, the tokens that a request's pages hold, and the cached
//! prefixes. The contents are the device's.

pub(crate) mod allocator;
mod device;
pub(crate) mod group;
pub(crate) mod pool;
pub(crate) mod radix;
pub(crate) mod req_to_token;
pub(crate) mod spaces;
pub(crate) mod states;
pub(crate) mod windows;

use std::fmt::Debug;
use std::hash::Hash;

/// Index of a page in the full space; the same in each of its groups and cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageIdx(pub(crate) u32);

/// Index of a page in the window space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WindowPageIdx(pub(crate) u32);

/// Index of a recurrent state in the pool; the same in every state's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StateSlot(pub(crate) u32);

/// SGLang's `req_pool_idx`: a request's row in the [`req_to_token::ReqToTokenPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReqPoolIdx(pub(crate) u32);

/// Where a request's KV lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KvPlaces {
    pub(crate) pages: Vec<PageIdx>,
    /// Those of its window, of a model with a window space.
    pub(crate) window: Vec<WindowPageIdx>,
    /// Of a model with recurrent state.
    pub(crate) slot: Option<StateSlot>,
}

/// What an allocator hands out.
pub(crate) trait Index: Copy + Debug + Eq + Hash {
    fn from_usize(index: usize) -> Self;

    fn get(self) -> usize;
}

// === impl PageIdx ===

impl Index for PageIdx {
    fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).expect("a pool has fewer than 2^32 pages"))
    }

    fn get(self) -> usize {
        self.0 as usize
    }
}

// === impl WindowPageIdx ===

impl Index for WindowPageIdx {
    fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).expect("a pool has fewer than 2^32 pages"))
    }

    fn get(self) -> usize {
        self.0 as usize
    }
}

// === impl StateSlot ===

impl Index for StateSlot {
    fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).expect("a pool has fewer than 2^32 state slots"))
    }

    fn get(self) -> usize {
        self.0 as usize
    }
}
