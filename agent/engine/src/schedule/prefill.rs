//! `PrefillScheduler`: requests that wait for their prompt to be computed, first come first served,
//! and the one whose prompt is computed in chunks.

use super::prefill_adder::{Admission, Candidate, PrefillAdder};
use crate::batch::BatchRow;
use crate::engine::RequestId;
use crate::kvcache::pool::KvCache;
use crate::req::Req;
use std::collections::VecDeque;
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct PrefillScheduler {
    waiting: VecDeque<Req>,
    /// Holds pages; precedes all waiting requests.
    chunked: Option<Req>,
}

// === impl PrefillScheduler ===

impl PrefillScheduler {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.chunked.is_some())
    }

    /// Tokens that no step has taken yet; for waiting requests, as if none were cached.
    pub(crate) fn waiting_tokens(&self) -> usize {
        let reqs = self.waiting.iter().chain(&self.chunked);
        reqs.map(Req::extend_len).sum()
    }

    /// When the first waiting request began to wait.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting.front()?.times.queued
    }

    pub(crate) fn push_back(&mut self, mut req: Req) {
        req.times.queued = Some(Instant::now());
        self.waiting.push_back(req);
    }

    /// For a request that had begun and lost its pages.
    pub(crate) fn push_front(&mut self, req: Req) {
        self.waiting.push_front(req);
    }

    /// Takes back a request after a chunk that was not its last.
    pub(crate) fn set_chunked(&mut self, req: Req) {
        assert!(
            self.chunked.is_none(),
            "one request is computed in chunks at a time"
        );
        self.chunked = Some(req);
    }

    /// Removes the requests for which `gone` holds, in order.
    pub(crate) fn take_if(&mut self, mut gone: impl FnMut(&mut Req) -> bool) -> Vec<Req> {
        let mut taken: Vec<_> = self.chunked.take_if(|req| gone(req)).into_iter().collect();
        let mut place = 0;
        while place < self.waiting.len() {
            if gone(&mut self.waiting[place]) {
                taken.extend(self.waiting.remove(place));
            } else {
                place += 1;
            }
        }
        taken
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Req> {
        self.take_if(|req| req.id == id).pop()
    }

    /// The prompts, or chunks, of the next step. Their pages are allocated.
    pub(crate) fn next_rows(
        &mut self,
        cache: &mut KvCache,
        mut adder: PrefillAdder,
    ) -> Vec<BatchRow> {
        let mut rows = Vec::new();
        if let Some(req) = self.chunked.take() {
            let admission = adder.go_on(candidate(&req));
            let Some(extend_len) = extend(cache, &req, admission) else {
                // The present holder of the memory will return it; no other request may start
                // before.
                self.chunked = Some(req);
                return rows;
            };
            rows.push(BatchRow { req, extend_len });
        }
        while let Some(mut req) = self.waiting.pop_front() {
            let Some(extend_len) = start(cache, &mut req, &mut adder) else {
                self.waiting.push_front(req);
                break;
            };
            rows.push(BatchRow { req, extend_len });
        }
        rows
    }
}

/// Gives the request a row, its cached prefix, and pages for the returned number of tokens; or
/// nothing.
fn start(cache: &mut KvCache, req: &mut Req, adder: &mut PrefillAdder) -> Option<usize> {
    let kv = cache.begin(&req.tokens[..req.cacheable_len()])?;
    let cached_len = kv.len;
    req.kv = Some(kv);
    let admission = adder.admit(candidate(req), cache.available_tokens());
    let Some(extend_len) = extend(cache, req, admission) else {
        cache.discard(req.kv.take().expect("the request was given a row above"));
        return None;
    };
    if req.times.first_scheduled.is_none() {
        req.times.first_scheduled = Some(Instant::now());
        req.cached_tokens = cached_len;
        req.open_prompt_logprobs();
    }
    Some(extend_len)
}

fn extend(cache: &mut KvCache, req: &Req, admission: Admission) -> Option<usize> {
    let extend_len = match admission {
        Admission::Whole => req.extend_len(),
        Admission::Chunk(len) => len,
        Admission::NoTokens | Admission::Full => return None,
    };
    let kv = req
        .kv
        .as_ref()
        .expect("a request is given a row before it is extended");
    cache
        .try_extend(kv, kv.len + extend_len)
        .then_some(extend_len)
}

fn candidate(req: &Req) -> Candidate {
    let extend_len = req.extend_len();
    let without_logits = match req.prompt_logprobs_from() {
        Some(from) if from + 1 < req.prompt_len => from.saturating_sub(req.kv_len()),
        Some(_) | None => extend_len - 1,
    };
    let without_logits = without_logits.min(extend_len - 1);
    Candidate {
        extend_len,
        remaining_len: req.remaining_len(),
        without_logits,
    }
}
