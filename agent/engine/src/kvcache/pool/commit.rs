//! What a request gives to the cache while it goes on, and at its end: pages, states, and the pages of its window.

use super::{KvCache, Prefixes, ReqKv};
use crate::kvcache::allocator::Owner;
use crate::kvcache::pool::state::ReqState;

// === impl KvCache ===

impl KvCache {
    /// Whether what one request computes is there for others.
    pub(crate) fn keeps_prefixes(&self) -> bool {
        self.radix.is_enabled()
    }

    /// Caches what the last step made worth it, which began behind `from`: a state that it kept for others, or a chunk
    /// of a prompt that the window leaves behind.
    pub(crate) fn commit_new(
        &mut self,
        kv: &mut ReqKv,
        from: usize,
        is_prompt: bool,
        tokens: &[u32],
    ) {
        let state = kv.state.as_ref();
        let keeps_state = state.is_some_and(|state| state.has_snapshot_in(from..kv.len));
        if keeps_state || is_prompt && self.windows.is_some() {
            self.commit(kv, tokens);
        }
    }

    /// Caches the full pages that hold `tokens[..kv.len]` for others, those of a model with recurrent state up to the
    /// last state that was kept; the request continues. Of what a request receives, all of them.
    ///
    /// Of a prefix that it computed although it is cached, the request would lock the cached pages beside its own.
    /// Where it may be computed like that again after a retraction, which is so with recurrent state, or is committed
    /// within its prompt, where none is retracted, which is so with windows, that waits for its end; until then the request
    /// holds the last state alone.
    pub(crate) fn commit(&mut self, kv: &mut ReqKv, tokens: &[u32]) {
        let computed = kv.len.min(tokens.len());
        if self.prefixes == Prefixes::Received {
            return self.commit_all(kv, tokens);
        }
        let has_snapshot = |state: &ReqState| state.has_snapshot_in(0..computed);
        let is_useful = kv.state.as_ref().is_none_or(has_snapshot);
        if !is_useful {
            return;
        }
        let must_wait = kv.state.is_some() || self.windows.is_some();
        if !must_wait || !self.has_duplicates(kv, &tokens[..computed]) {
            self.commit_all(kv, tokens);
        } else if let Some(state) = &mut kv.state {
            let older = state.take_older_snapshots(computed);
            self.return_slots(&older, Owner::Held);
        }
    }

    /// Whether other pages than the request's hold some of its `computed` tokens in the cache.
    fn has_duplicates(&mut self, kv: &ReqKv, computed: &[u32]) -> bool {
        let cached = self.radix.match_prefix(computed).pages;
        !self.req_to_token.pages(kv.idx).starts_with(&cached)
    }

    pub(super) fn commit_all(&mut self, kv: &mut ReqKv, tokens: &[u32]) {
        if !self.keeps_prefixes() || kv.is_private {
            return;
        }
        let computed = kv.len.min(tokens.len());
        let keeps_states = self.keeps_states();
        let (useful, snapshots) = match kv.state.as_mut().filter(|_| keeps_states) {
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
        if self.prefixes == Prefixes::Computed {
            self.commit_window(kv, computed);
        }
    }

    /// Caches the window's full pages of the first `computed` tokens, whose pages of the full space are cached.
    fn commit_window(&mut self, kv: &ReqKv, computed: usize) {
        if let Some(windows) = &mut self.windows {
            let mut prefix = self.radix.path_pages(kv.node);
            prefix.truncate(computed / self.req_to_token.page_size());
            windows.commit(self.req_to_token.window_mut(kv.idx), &prefix);
        }
    }

    /// Returns what no step reads any more; it is cached if it was committed.
    pub(crate) fn leave_window(&mut self, kv: &ReqKv) {
        if let Some(windows) = &mut self.windows {
            windows.leave(self.req_to_token.window_mut(kv.idx), kv.len);
        }
    }
}
