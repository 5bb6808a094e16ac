//! `KvCache`: the allocators, the radix cache and the request rows as one, so that no page and no state slot is lost
//! between them. Its verbs are the life of a request's KV: `begin` (`begin_received` on decode),
//! `try_extend`, `commit`, then `end`, `discard` or `quarantine`.
//!
//! Owner of page `i` of a row: the radix cache, if the path to the request's locked node has that
//! very page at index `i`; the request otherwise. So a page that two requests computed concurrently
//! is cached once and held once, and both are returned.
//!
//! A request of a model with recurrent state holds a working slot, which steps write. What it begins from is a state of
//! the cache, which they only read ([`state`]).

pub(crate) mod state;
mod usage;

use super::allocator::{Allocator, Counts, Owner};
use super::radix::{Caching, NodeId, RadixCache};
use super::req_to_token::ReqToTokenPool;
use super::{PageIdx, ReqPoolIdx, StateSlot};
use state::{ReqState, StateSource};

pub(crate) use usage::Usage;

#[derive(Debug)]
pub(crate) struct KvCache {
    pages: Allocator<PageIdx>,
    /// None of a model without recurrent state.
    slots: Option<Allocator<StateSlot>>,
    radix: RadixCache,
    req_to_token: ReqToTokenPool,
}

/// Sizes of a [`KvCache`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvCacheSizes {
    pub(crate) num_pages: usize,
    pub(crate) page_size: usize,
    /// `None`: the model has no recurrent state.
    pub(crate) num_slots: Option<usize>,
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
    /// Tokens whose KV was found or cached; steps that compute them again do not write them.
    cached_len: usize,
    /// Locked while the request lives.
    node: NodeId,
    /// Of a model with recurrent state.
    pub(crate) state: Option<ReqState>,
}

/// Pages and slots of an ended request that a peer may still touch.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pages: Vec<PageIdx>,
    slots: Vec<StateSlot>,
    /// A state of the cache that the request's first step may still read.
    source: Option<StateSource>,
    node: NodeId,
}

// === impl KvCache ===

impl KvCache {
    pub(crate) fn new(sizes: KvCacheSizes) -> Self {
        let KvCacheSizes {
            num_pages,
            page_size,
            num_slots,
            max_running_requests,
            pre_alloc_size,
            radix,
        } = sizes;
        let caching = match (radix, num_slots) {
            (false, _) => Caching::Off,
            (true, None) => Caching::Pages,
            (true, Some(_)) => Caching::PagesAndStates,
        };
        Self {
            pages: Allocator::new(num_pages),
            slots: num_slots.map(Allocator::new),
            radix: RadixCache::new(page_size, caching),
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
        self.pages.free_len() + self.radix.unlocked_pages()
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

    /// A row for a running request, with the cached part of `tokens`. `None`: no row is free, or no state slot.
    pub(crate) fn begin(&mut self, tokens: &[u32]) -> Option<ReqKv> {
        let idx = self.req_to_token.alloc()?;
        let found = self.radix.match_prefix(tokens);
        self.radix.lock(found.node);
        let cached_len = found.pages.len() * self.page_size();
        let Ok(state) = self.begin_state(found.state, cached_len) else {
            self.radix.unlock(found.node);
            self.req_to_token.free(idx);
            return None;
        };
        let len = match &state {
            Some(state) => state.kept_len(),
            None => cached_len,
        };
        *self.req_to_token.pages_mut(idx) = found.pages;
        Some(ReqKv {
            idx,
            len,
            cached_len,
            node: found.node,
            state,
        })
    }

    /// A row, pages for `len` tokens that will be received, and a state slot. `None`: there are too few of them, and
    /// nothing was taken.
    pub(crate) fn begin_received(&mut self, len: usize) -> Option<ReqKv> {
        if len.div_ceil(self.page_size()) > self.available_pages() {
            return None;
        }
        let idx = self.req_to_token.pre_alloc()?;
        let Ok(state) = self.begin_state(None, 0) else {
            self.req_to_token.free(idx);
            return None;
        };
        let node = self.radix.match_prefix(&[]).node;
        let kv = ReqKv {
            idx,
            len: 0,
            cached_len: 0,
            node,
            state,
        };
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
        let missing = short.saturating_sub(self.pages.free_len());
        if missing > 0 {
            self.evict(missing);
        }
        self.pages
            .try_alloc(short, self.req_to_token.pages_mut(kv.idx))
    }

    /// Of `drafts` drafts all before token number `drawn` were right: returns the pages behind the next position, in
    /// which is nothing but wrong ones, and takes up the state after the right ones.
    pub(crate) fn verified(&mut self, kv: &mut ReqKv, drafts: usize, drawn: usize) {
        if let Some(state) = &mut kv.state {
            state.verified(drafts, drawn);
        }
        self.give_back(kv, kv.len + 1, 0);
    }

    /// Returns the request's pages behind those for `len` tokens, and its slots for more than `drafts` drafts.
    pub(crate) fn give_back(&mut self, kv: &mut ReqKv, len: usize, drafts: usize) {
        if let Some(state) = &mut kv.state {
            let spare = state.take_spare(drafts);
            self.return_slots(&spare, Owner::Held);
        }
        let kept = len.div_ceil(self.page_size());
        let pages = self.req_to_token.pages_mut(kv.idx);
        let rest = pages.split_off(kept.min(pages.len()));
        self.pages.free(&rest, Owner::Held);
    }

    /// A step has computed the request up to `len`.
    pub(crate) fn computed(&mut self, kv: &mut ReqKv, len: usize) {
        kv.len = len;
        if let Some(state) = &mut kv.state {
            // The first step has read it.
            let source = state.source.take();
            self.unlock_source(source);
        }
    }

    /// Caches what the last step made worth it, which began behind `from`: a state that it kept for others.
    pub(crate) fn commit_new(&mut self, kv: &mut ReqKv, from: usize, tokens: &[u32]) {
        let state = kv.state.as_ref();
        if state.is_some_and(|state| state.has_snapshot_in(from..kv.len)) {
            self.commit(kv, tokens);
        }
    }

    /// Caches the full pages that hold `tokens[..kv.len]` for others, those of a model with recurrent state up to the
    /// last state that was kept; the request continues.
    ///
    /// Of a prefix that it computed although it is cached, the request would lock the cached pages beside its own.
    /// Where it may be computed like that again after a retraction, which is so with recurrent state, that waits for
    /// its end; until then the request holds the last state alone.
    pub(crate) fn commit(&mut self, kv: &mut ReqKv, tokens: &[u32]) {
        let computed = kv.len.min(tokens.len());
        let has_snapshot = |state: &ReqState| state.has_snapshot_in(0..computed);
        let is_useful = kv.state.as_ref().is_none_or(has_snapshot);
        if !is_useful {
            return;
        }
        let is_duplicate = kv.state.is_some() && self.has_duplicates(kv, &tokens[..computed]);
        match &mut kv.state {
            Some(state) if is_duplicate => {
                let older = state.take_older_snapshots(computed);
                self.return_slots(&older, Owner::Held);
            }
            Some(_) | None => self.commit_all(kv, tokens),
        }
    }

    /// Whether other pages than the request's hold some of its `computed` tokens in the cache.
    fn has_duplicates(&mut self, kv: &ReqKv, computed: &[u32]) -> bool {
        let cached = self.radix.match_prefix(computed).pages;
        !self.req_to_token.pages(kv.idx).starts_with(&cached)
    }

    fn commit_all(&mut self, kv: &mut ReqKv, tokens: &[u32]) {
        let computed = kv.len.min(tokens.len());
        let (useful, snapshots) = match &mut kv.state {
            None => (computed, Vec::new()),
            Some(state) => {
                let snapshots = state.take_snapshots(computed);
                let Some(last) = snapshots.iter().map(|snapshot| snapshot.len).max() else {
                    return;
                };
                (last, snapshots)
            }
        };
        // What is cached stays locked, also where no state is kept at its end.
        let num_pages = useful.max(kv.cached_len) / self.page_size();
        let pages = &self.req_to_token.pages(kv.idx)[..num_pages];
        let inserted = self
            .radix
            .insert(&tokens[..num_pages * self.page_size()], pages);
        for &page in &pages[inserted.new_from..] {
            self.pages.set(page, Owner::Held, Owner::Cached);
        }
        self.radix.lock(inserted.node);
        self.radix.unlock(kv.node);
        kv.node = inserted.node;
        kv.cached_len = num_pages * self.page_size();
        self.commit_states(snapshots, tokens);
    }

    /// Caches what the request computed of `tokens` and returns everything else.
    pub(crate) fn end(&mut self, mut kv: ReqKv, tokens: &[u32]) {
        self.commit_all(&mut kv, tokens);
        self.discard(kv);
    }

    /// [`Self::end`] of a request of these tokens, [`Self::discard`] of one whose KV is worthless.
    pub(crate) fn return_kv(&mut self, kv: ReqKv, tokens: Option<&[u32]>) {
        match tokens {
            Some(tokens) => self.end(kv, tokens),
            None => self.discard(kv),
        }
    }

    /// Returns everything that the request held; what it has cached stays cached.
    pub(crate) fn discard(&mut self, kv: ReqKv) {
        let own = self.take_own(&kv);
        self.pages.free(&own, Owner::Held);
        if let Some(state) = kv.state {
            let (slots, source) = state.into_slots();
            self.return_slots(&slots, Owner::Held);
            self.unlock_source(source);
        }
        self.radix.unlock(kv.node);
    }

    /// Ends a request whose pages a peer may still touch. Its row is free immediately, its pages and slots
    /// after [`Self::release`].
    pub(crate) fn quarantine(&mut self, kv: ReqKv) -> Quarantined {
        let pages = self.take_own(&kv);
        for &page in &pages {
            self.pages.set(page, Owner::Held, Owner::Quarantined);
        }
        let (slots, source) = kv.state.map(ReqState::into_slots).unwrap_or_default();
        self.quarantine_slots(&slots);
        Quarantined {
            pages,
            slots,
            source,
            node: kv.node,
        }
    }

    /// No peer can touch the pages and slots any more.
    pub(crate) fn release(&mut self, quarantined: Quarantined) {
        let Quarantined {
            pages,
            slots,
            source,
            node,
        } = quarantined;
        self.pages.free(&pages, Owner::Quarantined);
        self.return_slots(&slots, Owner::Quarantined);
        self.unlock_source(source);
        self.radix.unlock(node);
    }

    /// Drops every prefix that no request uses.
    pub(crate) fn flush(&mut self) {
        self.evict(usize::MAX);
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            pages: self.pages.counts(),
            locked: self.radix.locked_pages(),
            unlocked: self.radix.unlocked_pages(),
            slots: self
                .slots
                .as_ref()
                .map_or_else(Counts::default, Allocator::counts),
            locked_states: self.radix.locked_states(),
            unlocked_states: self.radix.unlocked_states(),
            rows: self.req_to_token.in_use(),
        }
    }

    #[cfg(test)]
    pub(crate) fn free_pages(&self) -> std::collections::HashSet<PageIdx> {
        self.pages.all_free()
    }

    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> std::collections::HashSet<StateSlot> {
        let slots = self.slots.as_ref();
        slots.map(Allocator::all_free).unwrap_or_default()
    }

    fn evict(&mut self, pages: usize) {
        let evicted = self.radix.evict(pages);
        self.pages.free(&evicted.pages, Owner::Cached);
        self.return_slots(&evicted.states, Owner::Cached);
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

#[cfg(test)]
mod tests;
