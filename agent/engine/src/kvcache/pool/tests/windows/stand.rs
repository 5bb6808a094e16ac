//! A cache, and a device that runs the steps of its requests.

use super::{PAGE_SIZE, mk_cache, receive};
use crate::kvcache::WindowPageIdx;
use crate::kvcache::pool::{KvCache, Quarantined, ReqKv};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

/// What a slot of the window space holds: the entry of the last of these tokens.
type Slots = HashMap<(WindowPageIdx, usize), Vec<u32>>;

pub(super) struct Request {
    pub(super) id: usize,
    pub(super) kv: ReqKv,
    pub(super) tokens: Vec<u32>,
    pub(super) handed: usize,
    pub(super) in_flight: usize,
}

/// A step over a request's `positions`, with the window's pages from the place `first` on.
pub(super) struct Launched {
    id: usize,
    from: usize,
    end: usize,
    first: usize,
    pages: Vec<WindowPageIdx>,
}

/// A cache, and a device that computes steps in the order of their launches, each when it is settled.
pub(super) struct Stand {
    pub(super) cache: KvCache,
    window: usize,
    slots: Slots,
    pub(super) live: Vec<Request>,
    pub(super) launched: VecDeque<Launched>,
    pub(super) quarantined: Vec<Quarantined>,
    num_requests: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Begin(Vec<u32>),
    /// The prompt's window is written at once, as a peer does.
    Receive(Vec<u32>),
    /// Request, tokens.
    Launch(usize, usize),
    Settle,
    /// Drafts of the last step were wrong.
    GiveBack(usize),
    End(usize),
    Discard(usize),
    Quarantine(usize),
    Release,
    Flush,
}

pub(super) fn mk_action() -> impl Strategy<Value = Action> {
    let which = 0..4usize;
    let tokens = || prop::collection::vec(0..2u32, 1..24);
    prop_oneof![
        3 => tokens().prop_map(Action::Begin),
        1 => tokens().prop_map(Action::Receive),
        8 => (which.clone(), 1..9usize).prop_map(|(i, n)| Action::Launch(i, n)),
        6 => Just(Action::Settle),
        1 => which.clone().prop_map(Action::GiveBack),
        2 => which.clone().prop_map(Action::End),
        1 => which.clone().prop_map(Action::Discard),
        1 => which.prop_map(Action::Quarantine),
        1 => Just(Action::Release),
        1 => Just(Action::Flush),
    ]
}

// === impl Stand ===

impl Stand {
    pub(super) fn new(num_window_pages: usize, window: usize, radix: bool) -> Self {
        Self {
            cache: mk_cache(24, num_window_pages, window, radix),
            window,
            slots: Slots::new(),
            live: Vec::new(),
            launched: VecDeque::new(),
            quarantined: Vec::new(),
            num_requests: 0,
        }
    }

    pub(super) fn push(&mut self, kv: ReqKv, tokens: Vec<u32>) {
        self.num_requests += 1;
        self.live.push(Request {
            id: self.num_requests,
            handed: kv.len,
            kv,
            tokens,
            in_flight: 0,
        });
    }

    fn receive(&mut self, tokens: Vec<u32>) {
        let len = tokens.len();
        let Some(mut kv) = receive(&mut self.cache, len) else {
            return;
        };
        let first = self.cache.spaces().first_seen(len) * PAGE_SIZE;
        let row = self.cache.req_to_token().window(kv.idx).expect("a window");
        for position in first..len {
            let slot = (row.page(position / PAGE_SIZE), position % PAGE_SIZE);
            self.slots.insert(slot, tokens[..=position].to_vec());
        }
        kv.received(len);
        if self.cache.try_promote(&kv) {
            // It goes on with one token.
            self.push(kv, [&tokens[..], &[7]].concat());
        } else {
            self.cache.discard(kv);
        }
    }

    pub(super) fn launch(&mut self, i: usize, by: usize) {
        let Some(request) = self.live.get_mut(i) else {
            return;
        };
        let (from, kv) = (request.handed, &request.kv);
        let end = (from + by).min(request.tokens.len());
        if from == end || !self.cache.try_extend(kv, end) {
            return;
        }
        let row = self.cache.req_to_token().window(kv.idx).expect("a window");
        let first = (from + 1).saturating_sub(self.window) / PAGE_SIZE;
        let places = first..end.div_ceil(PAGE_SIZE);
        self.launched.push_back(Launched {
            id: request.id,
            from,
            end,
            first,
            pages: places.map(|place| row.page(place)).collect(),
        });
        request.handed = end;
        request.in_flight += 1;
    }

    pub(super) fn settle(&mut self) {
        let Some(step) = self.launched.pop_front() else {
            return;
        };
        let request = self.live.iter_mut().find(|request| request.id == step.id);
        let request = request.expect("requests end after their steps");
        let slot = |position: usize| {
            let page = step.pages[position / PAGE_SIZE - step.first];
            (page, position % PAGE_SIZE)
        };
        for position in step.from..step.end {
            let entry = request.tokens[..=position].to_vec();
            self.slots.insert(slot(position), entry);
        }
        for position in (step.from + 1).saturating_sub(self.window)..step.end {
            let seen = self.slots.get(&slot(position)).map(|tokens| &tokens[..]);
            assert_eq!(
                seen,
                Some(&request.tokens[..=position]),
                "what a window sees"
            );
        }
        request.in_flight -= 1;
        let Request { kv, tokens, .. } = request;
        self.cache.computed(kv, step.end);
        let is_prompt = step.end - step.from > 1;
        self.cache.commit_new(kv, step.from, is_prompt, tokens);
        self.cache.leave_window(kv);
    }

    /// A request of which no step is in flight.
    fn take(&mut self, i: usize) -> Option<Request> {
        let is_idle = self
            .live
            .get(i)
            .is_some_and(|request| request.in_flight == 0);
        is_idle.then(|| self.live.swap_remove(i))
    }

    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::Begin(tokens) => {
                if let Some(kv) = self.cache.begin(&tokens[..tokens.len() - 1]) {
                    self.push(kv, tokens);
                }
            }
            Action::Receive(tokens) => self.receive(tokens),
            Action::Launch(i, by) => self.launch(i, by),
            Action::Settle => self.settle(),
            Action::GiveBack(i) => {
                if let Some(Request {
                    kv, tokens, handed, ..
                }) = self.live.get_mut(i)
                    && *handed == tokens.len()
                    && self.cache.try_extend(kv, tokens.len() + 3)
                {
                    self.cache.give_back(kv, tokens.len(), 0);
                }
            }
            Action::End(i) => {
                if let Some(Request { kv, tokens, .. }) = self.take(i) {
                    self.cache.end(kv, &tokens);
                }
            }
            Action::Discard(i) => {
                if let Some(request) = self.take(i) {
                    self.cache.discard(request.kv);
                }
            }
            Action::Quarantine(i) => {
                if let Some(request) = self.take(i) {
                    self.quarantined.push(self.cache.quarantine(request.kv));
                }
            }
            Action::Release => {
                if let Some(quarantined) = self.quarantined.pop() {
                    self.cache.release(quarantined);
                }
            }
            Action::Flush => self.cache.flush(),
        }
    }

    pub(super) fn assert_conserved(&self) {
        let usage = self.cache.usage();
        for (counts, cached) in [
            (usage.pages, usage.locked + usage.unlocked),
            (
                usage.window_pages,
                usage.locked_windows + usage.unlocked_windows,
            ),
        ] {
            let sum = counts.free + counts.held + counts.cached + counts.quarantined;
            assert_eq!(sum, counts.total);
            assert_eq!(counts.cached, cached);
        }
    }
}
