//! `PrefillScheduler`: requests that wait for their prompt to be computed, first come first served but for those that wait for
//! another's prompt, and the one whose prompt is computed in chunks. A request leaves with its last chunk.

use super::computing::{Computing, WAITING_MAX};
use super::prefill_adder::{Admission, Candidate, PrefillAdder};
use super::snapshots;
use crate::active::Active;
use crate::command::RequestId;
use crate::kvcache::pool::{KvCache, ReqKv};
use crate::req::Req;
use crate::step::StepBuilder;
use std::collections::VecDeque;
use std::time::Instant;

/// `T` is what the mode keeps beside a request.
#[derive(Debug)]
pub(crate) struct PrefillScheduler<T = ()> {
    waiting: VecDeque<Waiting<T>>,
    /// Precedes all waiting requests.
    chunked: Option<Active<T>>,
}

/// A request without pages.
#[derive(Debug)]
pub(crate) struct Waiting<T = ()> {
    pub(crate) req: Req,
    pub(crate) with: T,
}

/// A request that is taken out before its prompt is computed.
#[derive(Debug)]
pub(crate) enum Taken<T = ()> {
    Waiting(Waiting<T>),
    /// Steps have computed some of it.
    Begun(Active<T>),
}

// === impl Taken ===

impl<T> Taken<T> {
    pub(crate) fn req(&self) -> &Req {
        match self {
            Self::Waiting(waiting) => &waiting.req,
            Self::Begun(active) => &active.req,
        }
    }

    pub(crate) fn with(&self) -> &T {
        match self {
            Self::Waiting(waiting) => &waiting.with,
            Self::Begun(active) => &active.with,
        }
    }
}

// === impl PrefillScheduler ===

impl<T> Default for PrefillScheduler<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            chunked: None,
        }
    }
}

impl<T> PrefillScheduler<T> {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.chunked.is_some())
    }

    /// Tokens that no step has taken yet; for waiting requests, as if none were cached.
    pub(crate) fn waiting_tokens(&self) -> usize {
        let waiting = self.waiting.iter().map(|waiting| waiting.req.tokens.len());
        let chunked = self.chunked.iter().map(Active::todo_len);
        waiting.chain(chunked).sum()
    }

    /// When the first waiting request began to wait.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting.front()?.req.times.queued
    }

    pub(crate) fn push_back(&mut self, mut req: Req, with: T) {
        req.times.queued = Some(Instant::now());
        self.waiting.push_back(Waiting { req, with });
    }

    /// For a request that had begun and lost its pages.
    pub(crate) fn push_front(&mut self, req: Req, with: T) {
        self.waiting.push_front(Waiting { req, with });
    }

    /// The request that is computed in chunks, if it is this one.
    pub(crate) fn chunked_mut(&mut self, id: RequestId) -> Option<&mut Active<T>> {
        self.chunked.as_mut().filter(|active| active.req.id == id)
    }

    /// Removes the requests for which `gone` holds, in order.
    pub(crate) fn take_if(&mut self, gone: impl Fn(&Req, &T) -> bool) -> Vec<Taken<T>> {
        let chunked = self
            .chunked
            .take_if(|active| gone(&active.req, &active.with));
        let mut taken: Vec<_> = chunked.map(Taken::Begun).into_iter().collect();
        let mut place = 0;
        while let Some(waiting) = self.waiting.get(place) {
            if gone(&waiting.req, &waiting.with) {
                taken.extend(self.waiting.remove(place).map(Taken::Waiting));
            } else {
                place += 1;
            }
        }
        taken
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Taken<T>> {
        self.take_if(|req, _| req.id == id).pop()
    }

    /// Adds prompts, or chunks of them, to the step. Returns the requests whose last chunk that is. `computing`: prompts
    /// whose last chunk is in flight.
    pub(crate) fn push_rows(
        &mut self,
        cache: &mut KvCache,
        step: &mut StepBuilder,
        mut adder: PrefillAdder,
        computing: &Computing<'_>,
    ) -> Vec<Active<T>> {
        let mut whole = Vec::new();
        if let Some(mut active) = self.chunked.take() {
            let shared = cache.shared_window(&active.kv);
            let candidate = candidate(&active.req, active.handed(), shared, 0);
            let admission = adder.go_on(candidate);
            let extended = extend(cache, &active.kv, active.handed(), candidate, admission);
            let Some(len) = extended else {
                // The present holder of the memory will return it; no other request may start
                // before.
                self.chunked = Some(active);
                return whole;
            };
            let snapshots = snapshots::keep(cache, &mut active, len);
            step.push(&mut active, len, &snapshots, cache.req_to_token());
            self.keep(active, &mut whole);
        }
        let mut place = 0;
        while let Some(waiting) = self.waiting.get(place) {
            let of_step = self.chunked.iter().chain(&whole);
            let of_step = of_step.map(|active| &*active.req.tokens);
            let is_awaited = |kv: &ReqKv, page_size| {
                let tokens = &waiting.req.tokens[..waiting.req.cacheable_len()];
                computing.is_awaited(of_step, tokens, kv.len, page_size)
            };
            // One that was passed over must not wait for all chunks of a later one.
            let must_be_whole = place > 0;
            let begun = start(cache, &waiting.req, &mut adder, must_be_whole, is_awaited);
            let (kv, len) = match begun {
                Start::Begins(kv, len) => (kv, len),
                Start::Awaits if place < WAITING_MAX => {
                    place += 1;
                    continue;
                }
                Start::Awaits | Start::NoRoom => break,
            };
            let waiting = self.waiting.remove(place);
            let Waiting { req, with } = waiting.expect("it was seen above");
            let mut active = Active::new(req, kv, with);
            note_start(&mut active.req, active.kv.len);
            let snapshots = snapshots::keep(cache, &mut active, len);
            step.push(&mut active, len, &snapshots, cache.req_to_token());
            self.keep(active, &mut whole);
        }
        whole
    }

    fn keep(&mut self, active: Active<T>, whole: &mut Vec<Active<T>>) {
        if active.drawing() > 0 {
            whole.push(active);
            return;
        }
        assert!(
            self.chunked.is_none(),
            "one request is computed in chunks at a time"
        );
        self.chunked = Some(active);
    }
}

/// Whether a request begins in a step.
enum Start {
    /// It has a row with its cached prefix, and pages for so many more tokens.
    Begins(ReqKv, usize),
    /// A step in flight computes most of its prompt.
    Awaits,
    NoRoom,
}

fn start(
    cache: &mut KvCache,
    req: &Req,
    adder: &mut PrefillAdder,
    must_be_whole: bool,
    is_awaited: impl FnOnce(&ReqKv, usize) -> bool,
) -> Start {
    let Some(kv) = cache.begin(&req.tokens[..req.cacheable_len()]) else {
        return Start::NoRoom;
    };
    if cache.keeps_prefixes() && is_awaited(&kv, cache.page_size()) {
        cache.discard(kv);
        return Start::Awaits;
    }
    let candidate = candidate(req, kv.len, cache.shared_window(&kv), kv.held_len());
    let admission = adder.admit(candidate, cache.available_tokens());
    let is_cut = must_be_whole && matches!(admission, Admission::Chunk(_));
    let extended = (!is_cut).then(|| extend(cache, &kv, kv.len, candidate, admission));
    match extended.flatten() {
        Some(len) => Start::Begins(kv, len),
        None => {
            cache.discard(kv);
            Start::NoRoom
        }
    }
}

/// The request's first step is scheduled.
fn note_start(req: &mut Req, cached_len: usize) {
    if req.times.first_scheduled.is_none() {
        req.times.first_scheduled = Some(Instant::now());
        req.cached_tokens = cached_len;
        req.open_prompt_logprobs();
    }
}

/// Pages for as many tokens behind `from` as were admitted, if there are enough.
fn extend(
    cache: &mut KvCache,
    kv: &ReqKv,
    from: usize,
    candidate: Candidate,
    admission: Admission,
) -> Option<usize> {
    let len = match admission {
        Admission::Whole => candidate.extend_len,
        Admission::Chunk(len) => len,
        Admission::NoTokens | Admission::Full => return None,
    };
    cache.try_extend(kv, from + len).then_some(len)
}

/// The demand of a request whose tokens before `from` are computed or in flight, `shared` of them in pages of its window
/// that others have as well, and which has pages for `held_len` more.
fn candidate(req: &Req, from: usize, shared: usize, held_len: usize) -> Candidate {
    let extend_len = req.tokens.len() - from;
    let without_logits = match req.prompt_logprobs_from() {
        Some(first) if first + 1 < req.prompt_len => first.saturating_sub(from),
        Some(_) | None => extend_len - 1,
    };
    Candidate {
        from,
        shared,
        extend_len,
        held_len,
        remaining_len: req.remaining_len(),
        without_logits: without_logits.min(extend_len - 1),
    }
}
