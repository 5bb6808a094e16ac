//! `KvCache`: the allocator, the radix cache and the request rows as one, so that no page is lost
//! between them. Its verbs are the life of a request's KV: `begin` (`begin_received` on decode),
//! `try_extend`, `commit`, then `end`, `discard` or `quarantine`.
//!
//! Owner of page `i` of a row: the radix cache, if the path to the request's locked node has that
//! very page at index `i`; the request otherwise. So a page that two requests computed concurrently
//! is cached once and held once, and both are returned.

use super::page_allocator::{PageAllocator, PageCounts, PageState};
use super::radix::{NodeId, RadixCache};
use super::req_to_token::ReqToTokenPool;
use super::{PageIdx, ReqPoolIdx};

#[derive(Debug)]
pub(crate) struct KvCache {
    allocator: PageAllocator,
    radix: RadixCache,
    req_to_token: ReqToTokenPool,
}

/// Sizes of a [`KvCache`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvCacheSizes {
    pub(crate) num_pages: usize,
    pub(crate) page_size: usize,
    pub(crate) max_running_requests: usize,
    pub(crate) pre_alloc_size: usize,
    pub(crate) radix: bool,
}

/// A request's KV. Returned through [`KvCache::end`], [`KvCache::discard`] or
/// [`KvCache::quarantine`], never dropped.
#[derive(Debug)]
pub(crate) struct ReqKv {
    pub(crate) idx: ReqPoolIdx,
    /// Tokens whose KV is computed or received.
    pub(crate) len: usize,
    /// Locked while the request lives.
    node: NodeId,
}

/// Pages of an ended request that a peer may still touch.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pages: Vec<PageIdx>,
    node: NodeId,
}

/// Where every page is, and how many request rows are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) pages: PageCounts,
    /// Cached pages that some request uses.
    pub(crate) locked: usize,
    pub(crate) unlocked: usize,
    pub(crate) rows: usize,
}

// === impl KvCache ===

impl KvCache {
    pub(crate) fn new(sizes: KvCacheSizes) -> Self {
        let KvCacheSizes {
            num_pages,
            page_size,
            max_running_requests,
            pre_alloc_size,
            radix,
        } = sizes;
        Self {
            allocator: PageAllocator::new(num_pages),
            radix: RadixCache::new(page_size, radix),
            req_to_token: ReqToTokenPool::new(max_running_requests, pre_alloc_size, page_size),
        }
    }

    pub(crate) fn page_size(&self) -> usize {
        self.req_to_token.page_size()
    }

    pub(crate) fn req_to_token(&self) -> &ReqToTokenPool {
        &self.req_to_token
    }

    /// The request's pages, as a transfer names them.
    pub(crate) fn page_ids(&self, kv: &ReqKv) -> Vec<u32> {
        let pages = self.req_to_token.pages(kv.idx);
        pages.iter().map(|page| page.0).collect()
    }

    /// Pages that can be allocated, by eviction if necessary.
    pub(crate) fn available_pages(&self) -> usize {
        self.allocator.free_len() + self.radix.unlocked_pages()
    }

    /// The same in tokens.
    pub(crate) fn available_tokens(&self) -> usize {
        self.available_pages() * self.page_size()
    }

    /// Additional pages that a request needs to hold `len` tokens.
    pub(crate) fn pages_short(&self, kv: &ReqKv, len: usize) -> usize {
        let has = self.req_to_token.pages(kv.idx).len();
        len.div_ceil(self.page_size()).saturating_sub(has)
    }

    /// A row for a running request, with the cached part of `tokens`. `None`: no row is free.
    pub(crate) fn begin(&mut self, tokens: &[u32]) -> Option<ReqKv> {
        let idx = self.req_to_token.alloc()?;
        let found = self.radix.match_prefix(tokens);
        self.radix.lock(found.node);
        let len = found.pages.len() * self.page_size();
        *self.req_to_token.pages_mut(idx) = found.pages;
        Some(ReqKv {
            idx,
            len,
            node: found.node,
        })
    }

    /// A row and pages for `len` tokens that will be received. `None`: there are too few rows or
    /// pages, and nothing was taken.
    pub(crate) fn begin_received(&mut self, len: usize) -> Option<ReqKv> {
        if len.div_ceil(self.page_size()) > self.available_pages() {
            return None;
        }
        let idx = self.req_to_token.pre_alloc()?;
        let node = self.radix.match_prefix(&[]).node;
        let kv = ReqKv { idx, len: 0, node };
        assert!(
            self.try_extend(&kv, len),
            "available pages can be allocated"
        );
        Some(kv)
    }

    /// Lets a received request run; `false` while all rows for running ones are taken.
    pub(crate) fn try_promote(&mut self, kv: &ReqKv) -> bool {
        self.req_to_token.try_promote(kv.idx)
    }

    /// Extends the request to pages for `len` tokens; `false`, without any effect, if there are too
    /// few.
    pub(crate) fn try_extend(&mut self, kv: &ReqKv, len: usize) -> bool {
        let short = self.pages_short(kv, len);
        if short > self.available_pages() {
            return false;
        }
        let missing = short.saturating_sub(self.allocator.free_len());
        if missing > 0 {
            let evicted = self.radix.evict(missing);
            self.allocator.free(&evicted, PageState::Cached);
        }
        self.allocator
            .try_alloc(short, self.req_to_token.pages_mut(kv.idx))
    }

    /// Caches the full pages that hold `tokens[..kv.len]` for others; the request continues.
    pub(crate) fn commit(&mut self, kv: &mut ReqKv, tokens: &[u32]) {
        let num_pages = kv.len.min(tokens.len()) / self.page_size();
        let pages = &self.req_to_token.pages(kv.idx)[..num_pages];
        let inserted = self
            .radix
            .insert(&tokens[..num_pages * self.page_size()], pages);
        for &page in &pages[inserted.new_from..] {
            self.allocator.set(page, PageState::Held, PageState::Cached);
        }
        self.radix.lock(inserted.node);
        self.radix.unlock(kv.node);
        kv.node = inserted.node;
    }

    /// Caches what the request computed of `tokens` and returns everything else.
    pub(crate) fn end(&mut self, mut kv: ReqKv, tokens: &[u32]) {
        self.commit(&mut kv, tokens);
        self.discard(kv);
    }

    /// Returns everything that the request held; its cached pages stay cached.
    pub(crate) fn discard(&mut self, kv: ReqKv) {
        let own = self.take_own(&kv);
        self.allocator.free(&own, PageState::Held);
        self.radix.unlock(kv.node);
    }

    /// Ends a request whose pages a peer may still touch. Its row is free immediately, its pages
    /// after [`Self::release`].
    pub(crate) fn quarantine(&mut self, kv: ReqKv) -> Quarantined {
        let pages = self.take_own(&kv);
        for &page in &pages {
            self.allocator
                .set(page, PageState::Held, PageState::Quarantined);
        }
        Quarantined {
            pages,
            node: kv.node,
        }
    }

    /// No peer can touch the pages any more.
    pub(crate) fn release(&mut self, quarantined: Quarantined) {
        self.allocator
            .free(&quarantined.pages, PageState::Quarantined);
        self.radix.unlock(quarantined.node);
    }

    /// Drops every prefix that no request uses.
    pub(crate) fn flush(&mut self) {
        let evicted = self.radix.evict(usize::MAX);
        self.allocator.free(&evicted, PageState::Cached);
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            pages: self.allocator.counts(),
            locked: self.radix.locked_pages(),
            unlocked: self.radix.unlocked_pages(),
            rows: self.req_to_token.in_use(),
        }
    }

    #[cfg(test)]
    pub(crate) fn free_pages(&self) -> std::collections::HashSet<PageIdx> {
        self.allocator.free_pages()
    }

    /// Frees the row and returns the pages in it that the radix cache does not own.
    fn take_own(&mut self, kv: &ReqKv) -> Vec<PageIdx> {
        let cached = self.radix.path_pages(kv.node);
        let mut pages = self.req_to_token.free(kv.idx);
        let mut place = 0..;
        pages.retain(|page| place.next().and_then(|i: usize| cached.get(i)) != Some(page));
        pages
    }
}

// === impl Usage ===

impl Usage {
    /// Invariant 7 (ARCHITECTURE.md) while the engine is idle: a page that is not free, cached or
    /// quarantined is lost, and so is a row in use. Only quarantined KV locks cached pages.
    pub(crate) fn is_conserved_when_idle(&self) -> bool {
        let pages = &self.pages;
        pages.free + self.unlocked + self.locked + pages.quarantined == pages.total
            && pages.held == 0
            && pages.cached == self.locked + self.unlocked
            && (self.locked == 0 || pages.quarantined > 0)
            && self.rows == 0
    }
}

#[cfg(test)]
mod tests;
