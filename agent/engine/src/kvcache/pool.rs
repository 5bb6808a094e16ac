//! `KvCache`: the allocators, the radix cache and the request rows as one, so that no page and no state slot is lost
//! between them. Its verbs are the life of a request's KV: `begin` (`begin_received` on decode),
//! `try_extend`, `commit`, then `end`, `discard` or `quarantine`.
//!
//! Owner of page `i` of a row: the radix cache, if the path to the request's locked node has that
//! very page at index `i`; the request otherwise. So a page that two requests computed concurrently
//! is cached once and held once, and both are returned.
//!
//! A request of a model with a window space has pages there for its last tokens alone ([`super::windows`]).
//!
//! A request of a model with recurrent state holds a working slot, which steps write. What it begins from is a state of
//! the cache, which they only read ([`state`]).

mod commit;
mod received;
mod room;
pub(crate) mod state;
mod usage;

use super::allocator::{Allocator, Counts, Owner};
use super::radix::{Caching, NodeId, RadixCache};
use super::req_to_token::ReqToTokenPool;
use super::spaces::Spaces;
use super::windows::{WindowRow, Windows};
use super::{KvPlaces, PageIdx, ReqPoolIdx, StateSlot};
use state::{ReqState, StateSource};

pub(crate) use usage::Usage;

#[derive(Debug)]
pub(crate) struct KvCache {
    pages: Allocator<PageIdx>,
    /// None of a model without a window space.
    windows: Option<Windows>,
    /// None of a model without recurrent state.
    slots: Option<Allocator<StateSlot>>,
    radix: RadixCache,
    prefixes: Prefixes,
    req_to_token: ReqToTokenPool,
}

/// Sizes of a [`KvCache`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvCacheSizes {
    pub(crate) num_pages: usize,
    pub(crate) spaces: Spaces,
    /// Of the window space, if the model has one.
    pub(crate) num_window_pages: usize,
    /// `None`: the model has no recurrent state.
    pub(crate) num_slots: Option<usize>,
    pub(crate) max_running_requests: usize,
    pub(crate) pre_alloc_size: usize,
    pub(crate) prefixes: Prefixes,
}

/// Which prefixes are cached for later requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefixes {
    Off,
    /// Those that requests compute. Later ones go on behind them: from the state that was kept at their end, and the
    /// window before it.
    Computed,
    /// Those that requests receive, and what they compute behind them. Later ones receive the rest, and with it their own
    /// state and window: only pages of the full space are cached.
    Received,
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
    /// Not of the request's own tokens, so it is cached for no other.
    is_private: bool,
}

/// Pages and slots of an ended request that a peer may still touch.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pages: Vec<PageIdx>,
    window: WindowRow,
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
            spaces,
            num_window_pages,
            num_slots,
            max_running_requests,
            pre_alloc_size,
            prefixes,
        } = sizes;
        let caching = match (prefixes, num_slots) {
            (Prefixes::Off, _) => Caching::Off,
            (Prefixes::Computed, Some(_)) => Caching::PagesAndStates,
            (Prefixes::Computed, None) | (Prefixes::Received, _) => Caching::Pages,
        };
        Self {
            pages: Allocator::new(num_pages),
            windows: spaces
                .window
                .map(|_| Windows::new(num_window_pages, spaces)),
            slots: num_slots.map(Allocator::new),
            radix: RadixCache::new(spaces.page_size, caching),
            prefixes,
            req_to_token: ReqToTokenPool::new(max_running_requests, pre_alloc_size, spaces),
        }
    }

    pub(crate) fn page_size(&self) -> usize {
        self.req_to_token.page_size()
    }

    pub(crate) fn req_to_token(&self) -> &ReqToTokenPool {
        &self.req_to_token
    }

    pub(crate) fn spaces(&self) -> Spaces {
        self.req_to_token.spaces()
    }

    /// The request's pages, as a transfer names them.
    pub(crate) fn page_ids(&self, kv: &ReqKv) -> Vec<u32> {
        let pages = self.req_to_token.pages(kv.idx);
        pages.iter().map(|page| page.0).collect()
    }

    /// The same of the window space: those that the step behind the request's pages reads.
    pub(crate) fn window_page_ids(&self, kv: &ReqKv) -> Vec<u32> {
        let row = self.req_to_token.window(kv.idx);
        let pages = row.map(|row| row.pages_before(row.end()));
        pages.iter().flatten().map(|page| page.0).collect()
    }

    /// Where the KV of the request's computed tokens lies, as far as later steps read it.
    pub(crate) fn places(&self, kv: &ReqKv) -> KvPlaces {
        let end = kv.len.div_ceil(self.page_size());
        let row = self.req_to_token.window(kv.idx);
        KvPlaces {
            pages: self.req_to_token.pages(kv.idx)[..end].to_vec(),
            window: row.map(|row| row.pages_before(end)).unwrap_or_default(),
            slot: kv.slot(),
        }
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
        let mut len = match &state {
            Some(state) => state.kept_len(),
            None => cached_len,
        };
        if let Some(windows) = &mut self.windows {
            let row = windows.begin(&found.pages);
            len = row.end() * self.req_to_token.page_size();
            *self.req_to_token.window_mut(idx) = row;
        }
        *self.req_to_token.pages_mut(idx) = found.pages;
        Some(ReqKv {
            idx,
            len,
            cached_len,
            node: found.node,
            state,
            is_private: false,
        })
    }

    /// Lets a received request run; `false` while all rows for running ones are taken.
    pub(crate) fn try_promote(&mut self, kv: &ReqKv) -> bool {
        self.req_to_token.try_promote(kv.idx)
    }

    /// Extends the request to pages for `len` tokens; `false`, without any effect, if there are too
    /// few.
    pub(crate) fn try_extend(&mut self, kv: &ReqKv, len: usize) -> bool {
        let short = self.pages_short(kv, len);
        if !short.fits(self.available_pages()) {
            return false;
        }
        let missing = short.full.saturating_sub(self.pages.free_len());
        if missing > 0 {
            self.evict(missing);
        }
        if let Some(windows) = &mut self.windows {
            let row = self.req_to_token.window_mut(kv.idx);
            let is_extended = windows.try_extend(row, short.window);
            assert!(is_extended, "available pages can be allocated");
        }
        self.pages
            .try_alloc(short.full, self.req_to_token.pages_mut(kv.idx))
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
        if let Some(windows) = &mut self.windows {
            windows.truncate(self.req_to_token.window_mut(kv.idx), kept);
        }
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
        let (own, window) = self.take_own(&kv);
        self.pages.free(&own, Owner::Held);
        if let Some(windows) = &mut self.windows {
            windows.end(window);
        }
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
        let (pages, window) = self.take_own(&kv);
        for &page in &pages {
            self.pages.set(page, Owner::Held, Owner::Quarantined);
        }
        if let Some(windows) = &mut self.windows {
            windows.quarantine(&window);
        }
        let (slots, source) = kv.state.map(ReqState::into_slots).unwrap_or_default();
        self.quarantine_slots(&slots);
        Quarantined {
            pages,
            window,
            slots,
            source,
            node: kv.node,
        }
    }

    /// No peer can touch the pages and slots any more.
    pub(crate) fn release(&mut self, quarantined: Quarantined) {
        let Quarantined {
            pages,
            window,
            slots,
            source,
            node,
        } = quarantined;
        self.pages.free(&pages, Owner::Quarantined);
        if let Some(windows) = &mut self.windows {
            windows.release(window);
        }
        self.return_slots(&slots, Owner::Quarantined);
        self.unlock_source(source);
        self.radix.unlock(node);
    }

    /// Drops every prefix that no request uses.
    pub(crate) fn flush(&mut self) {
        self.evict(usize::MAX);
    }

    pub(crate) fn usage(&self) -> Usage {
        let windows = self.windows.as_ref();
        Usage {
            pages: self.pages.counts(),
            window_pages: windows.map(Windows::counts).unwrap_or_default(),
            locked_windows: windows.map_or(0, Windows::locked),
            unlocked_windows: windows.map_or(0, Windows::unlocked),
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
    pub(crate) fn free_window_pages(&self) -> std::collections::HashSet<super::WindowPageIdx> {
        let windows = self.windows.as_ref();
        windows.map(Windows::all_free).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> std::collections::HashSet<StateSlot> {
        let slots = self.slots.as_ref();
        slots.map(Allocator::all_free).unwrap_or_default()
    }

    fn evict(&mut self, pages: usize) {
        let evicted = self.radix.evict(pages);
        if let Some(windows) = &mut self.windows {
            windows.forget(&evicted.pages);
        }
        self.pages.free(&evicted.pages, Owner::Cached);
        self.return_slots(&evicted.states, Owner::Cached);
    }

    /// Frees the row and returns the pages in it that the radix cache does not own, and those of the window space.
    fn take_own(&mut self, kv: &ReqKv) -> (Vec<PageIdx>, WindowRow) {
        let cached = self.radix.path_pages(kv.node);
        let (mut pages, window) = self.req_to_token.free(kv.idx);
        let mut place = 0..;
        pages.retain(|page| place.next().and_then(|i: usize| cached.get(i)) != Some(page));
        (pages, window)
    }
}

#[cfg(test)]
mod tests;
