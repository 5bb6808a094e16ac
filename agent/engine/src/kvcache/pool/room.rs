//! How many pages there are, and how many a request lacks.

use super::{KvCache, ReqKv};
use crate::kvcache::spaces::PerSpace;
use crate::kvcache::windows::Windows;

// === impl KvCache ===

impl KvCache {
    /// Pages that can be allocated, by eviction if necessary.
    pub(crate) fn available_pages(&self) -> PerSpace {
        PerSpace {
            full: self.pages.free_len() + self.radix.unlocked_pages(),
            window: self.windows.as_ref().map_or(0, Windows::available),
        }
    }

    /// The same in tokens.
    pub(crate) fn available_tokens(&self) -> PerSpace {
        let PerSpace { full, window } = self.available_pages();
        PerSpace {
            full: full * self.page_size(),
            window: window * self.page_size(),
        }
    }

    /// Slots that requests hold, which have so many tokens each: of pages that several of them have, once.
    pub(crate) fn held_tokens<'a>(
        &self,
        reqs: impl Iterator<Item = (&'a ReqKv, usize)>,
    ) -> PerSpace {
        let (mut held, mut cached) = (PerSpace::default(), 0);
        for (kv, len) in reqs {
            held += self.spaces().tokens(len);
            cached += kv.cached_len;
        }
        let locked = self.radix.locked_pages() * self.page_size();
        held.full -= cached.saturating_sub(locked);
        held
    }

    /// Tokens of a request's window that others have as well.
    pub(crate) fn shared_window(&self, kv: &ReqKv) -> usize {
        let row = self.windows.as_ref().zip(self.req_to_token.window(kv.idx));
        row.map_or(0, |(windows, row)| windows.shared(row)) * self.page_size()
    }

    /// Additional pages that a request needs to hold `len` tokens.
    pub(crate) fn pages_short(&self, kv: &ReqKv, len: usize) -> PerSpace {
        let has = self.req_to_token.pages(kv.idx).len();
        let row = self.windows.as_ref().zip(self.req_to_token.window(kv.idx));
        PerSpace {
            full: len.div_ceil(self.page_size()).saturating_sub(has),
            window: row.map_or(0, |(windows, row)| windows.short(row, len)),
        }
    }
}
