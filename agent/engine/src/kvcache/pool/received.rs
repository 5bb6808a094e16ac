//! KV that comes from a peer or from host memory: pages for what is not cached, and always a state slot and a window.

use super::{KvCache, ReqKv};

// === impl ReqKv ===

impl ReqKv {
    /// It may be of other tokens than the request's.
    pub(crate) fn keep_private(&mut self) {
        self.is_private = true;
    }

    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// The KV of the first `len` tokens has arrived, from a peer or from host memory, and the state after them.
    pub(crate) fn received(&mut self, len: usize) {
        self.len = len;
        if let Some(state) = &mut self.state {
            state.begun = true;
        }
    }
}

// === impl KvCache ===

impl KvCache {
    /// A row and a state slot for a request that will receive the KV of its first `received` tokens, but for the cached part
    /// of `prefix`, whose pages it has. `None`: no row is free, or no state slot.
    pub(crate) fn begin_received(&mut self, prefix: &[u32], received: usize) -> Option<ReqKv> {
        let idx = self.req_to_token.pre_alloc()?;
        let Ok(state) = self.begin_state(None, 0) else {
            self.req_to_token.free(idx);
            return None;
        };
        let found = self.radix.match_prefix(prefix);
        self.radix.lock(found.node);
        if let Some(windows) = &self.windows {
            *self.req_to_token.window_mut(idx) = windows.begin_received(received);
        }
        let cached_len = found.pages.len() * self.page_size();
        *self.req_to_token.pages_mut(idx) = found.pages;
        Some(ReqKv {
            idx,
            len: 0,
            cached_len,
            node: found.node,
            state,
            is_private: false,
        })
    }
}
