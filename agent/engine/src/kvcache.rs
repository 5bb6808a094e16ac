//! Bookkeeping of KV: the owner of each page, the tokens that a request's pages hold, and the
//! cached prefixes. The contents of the pages are the device's.

mod device;
pub(crate) mod group;
pub(crate) mod page_allocator;
pub(crate) mod pool;
pub(crate) mod radix;
pub(crate) mod req_to_token;

/// Index of a page in the pool; the same in every group and cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageIdx(pub(crate) u32);

/// SGLang's `req_pool_idx`: a request's row in the [`req_to_token::ReqToTokenPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReqPoolIdx(pub(crate) u32);

// === impl PageIdx ===

impl PageIdx {
    pub(crate) fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).expect("a pool has fewer than 2^32 pages"))
    }

    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }
}
