//! `QueueSizes`: the number of requests in each state, for gauges and for the check that nothing is left.

use std::time::Instant;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct QueueSizes {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Of requests that wait for their first step. On decode: of those without memory, whether they look for prefill or
    /// were retracted.
    pub(crate) waiting_tokens: usize,
    pub(crate) oldest: Option<Instant>,
    pub(crate) retracted: usize,
    pub(crate) bootstrap: usize,
    pub(crate) inflight: usize,
    pub(crate) prealloc: usize,
    pub(crate) transfer: usize,
    pub(crate) prealloc_tokens: usize,
    /// Ended requests whose pages a peer may still touch.
    pub(crate) fenced: usize,
    pub(crate) metadata_rows_used: usize,
    pub(crate) metadata_rows_total: usize,
    pub(crate) new_token_ratio: f64,
}

// === impl QueueSizes ===

impl QueueSizes {
    /// Whether no request is left, and no peer can touch a page.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            running,
            waiting,
            retracted,
            bootstrap,
            inflight,
            prealloc,
            transfer,
            ..
        } = self;
        let all = [
            running, waiting, retracted, bootstrap, inflight, prealloc, transfer,
        ];
        all.iter().all(|&&len| len == 0) && self.fenced == 0
    }

    /// Requests whose KV transfer has not ended.
    pub(crate) fn rooms(&self) -> usize {
        self.bootstrap + self.inflight + self.prealloc + self.transfer + self.fenced
    }
}
