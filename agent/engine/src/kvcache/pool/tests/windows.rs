//! Facts about the window space: no page is lost, none is given away that a step reads, and a request goes on behind a
//! prefix only where the window before its end is there.

use crate::kvcache::WindowPageIdx;
use crate::kvcache::pool::{KvCache, KvCacheSizes, Quarantined, ReqKv};
use crate::kvcache::spaces::Spaces;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

const PAGE_SIZE: usize = 2;

fn mk_cache(num_pages: usize, num_window_pages: usize, window: usize, radix: bool) -> KvCache {
    KvCache::new(KvCacheSizes {
        num_pages,
        spaces: Spaces {
            page_size: PAGE_SIZE,
            window: Some(window),
        },
        num_window_pages,
        num_slots: None,
        max_running_requests: 4,
        pre_alloc_size: 2,
        radix,
    })
}

/// What a slot of the window space holds: the entry of the last of these tokens.
type Slots = HashMap<(WindowPageIdx, usize), Vec<u32>>;

struct Request {
    id: usize,
    kv: ReqKv,
    tokens: Vec<u32>,
    handed: usize,
    in_flight: usize,
}

/// A step over a request's `positions`, with the window's pages from the place `first` on.
struct Launched {
    id: usize,
    from: usize,
    end: usize,
    first: usize,
    pages: Vec<WindowPageIdx>,
}

/// A cache, and a device that computes steps in the order of their launches, each when it is settled.
struct Stand {
    cache: KvCache,
    window: usize,
    slots: Slots,
    live: Vec<Request>,
    launched: VecDeque<Launched>,
    quarantined: Vec<Quarantined>,
    num_requests: usize,
}

#[derive(Clone, Debug)]
enum Action {
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

fn mk_action() -> impl Strategy<Value = Action> {
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
    fn new(num_window_pages: usize, window: usize, radix: bool) -> Self {
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

    fn push(&mut self, kv: ReqKv, tokens: Vec<u32>) {
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
        let Some(mut kv) = self.cache.begin_received(len, len) else {
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

    fn launch(&mut self, i: usize, by: usize) {
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

    fn settle(&mut self) {
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

    fn apply(&mut self, action: Action) {
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

    fn assert_conserved(&self) {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn every_step_finds_its_window_and_no_page_is_lost(
        actions in prop::collection::vec(mk_action(), 1..120),
        num_window_pages in 6..20usize,
        window in prop::sample::select(vec![1usize, 3, 4, 7]),
        radix: bool,
    ) {
        let mut stand = Stand::new(num_window_pages, window, radix);
        for action in actions {
            stand.apply(action);
            stand.assert_conserved();
        }
        while !stand.launched.is_empty() {
            stand.settle();
        }
        let Stand { mut cache, live, quarantined, .. } = stand;
        for Request { kv, tokens, .. } in live {
            cache.end(kv, &tokens);
        }
        for quarantined in quarantined {
            cache.release(quarantined);
        }
        prop_assert!(cache.usage().is_conserved_when_idle());
        cache.flush();
        prop_assert_eq!(cache.usage().window_pages.free, num_window_pages);
    }
}

/// A request whose tokens were computed by steps of `by`.
fn computed(stand: &mut Stand, tokens: &[u32], by: usize) -> Request {
    let kv = stand
        .cache
        .begin(&tokens[..tokens.len() - 1])
        .expect("a row");
    stand.push(kv, tokens.to_vec());
    let last = stand.live.len() - 1;
    while stand.live[last].handed < tokens.len() {
        stand.launch(last, by);
        stand.settle();
    }
    stand.live.pop().expect("it was pushed")
}

#[test]
fn a_request_keeps_the_pages_of_its_window_alone() {
    for radix in [false, true] {
        let mut stand = Stand::new(20, 4, radix);
        let tokens: Vec<u32> = (0..20).collect();
        let request = computed(&mut stand, &tokens, 5);
        let usage = stand.cache.usage();
        assert_eq!(usage.pages.held + usage.locked, 10);
        // The next query, at 20, sees 17 to 20.
        assert_eq!(usage.window_pages.held + usage.locked_windows, 2);
        assert_eq!(usage.unlocked_windows, if radix { 8 } else { 0 });
        stand.cache.discard(request.kv);
        assert!(stand.cache.usage().is_conserved_when_idle());
    }
}

#[test]
fn pages_that_a_step_in_flight_reads_stay() {
    let mut stand = Stand::new(20, 4, false);
    let tokens: Vec<u32> = (0..20).collect();
    let kv = stand.cache.begin(&tokens).expect("a row");
    stand.push(kv, tokens);
    for _ in 0..2 {
        stand.launch(0, 8);
    }
    stand.settle();
    let row = |stand: &Stand, place| {
        let idx = stand.live[0].kv.idx;
        let row = stand.cache.req_to_token().window(idx).expect("a window");
        row.live_page(place)
    };
    // The second step begins at 8 and sees 5.
    assert!(row(&stand, 1).is_none() && row(&stand, 2).is_some());
    stand.settle();
    assert!(row(&stand, 5).is_none() && row(&stand, 6).is_some());
}

#[test]
fn the_end_of_a_prefix_outlives_its_beginning() {
    let mut stand = Stand::new(12, 4, true);
    let tokens: Vec<u32> = (0..17).collect();
    let request = computed(&mut stand, &tokens, 17);
    stand.cache.end(request.kv, &tokens);
    assert_eq!(stand.cache.usage().unlocked_windows, 8);
    let others: Vec<u32> = (100..116).collect();
    let other = computed(&mut stand, &others, 4);
    assert!(
        stand.cache.usage().unlocked_windows < 8 + 6,
        "some were evicted"
    );
    let kv = stand.cache.begin(&tokens).expect("a row");
    assert_eq!(kv.len, 16);
    let parted = stand.cache.begin(&tokens[..7]).expect("a row");
    assert_eq!(parted.len, 0, "its window is gone");
    for kv in [kv, parted, other.kv] {
        stand.cache.discard(kv);
    }
    assert!(stand.cache.usage().is_conserved_when_idle());
}

#[test]
fn a_prefix_without_its_window_is_computed_again_into_no_second_page() {
    let mut stand = Stand::new(6, 4, true);
    let tokens: Vec<u32> = (0..9).collect();
    let first = computed(&mut stand, &tokens, 9);
    stand.cache.end(first.kv, &tokens);
    let others: Vec<u32> = (100..112).collect();
    let other = computed(&mut stand, &others, 4);
    stand.cache.end(other.kv, &others);
    let again = computed(&mut stand, &tokens, 9);
    let usage = stand.cache.usage();
    assert_eq!(usage.pages.held, 1, "the ninth token's");
    assert_eq!(usage.locked, 4);
    stand.cache.end(again.kv, &tokens);
    let kv = stand.cache.begin(&tokens).expect("a row");
    assert_eq!(kv.len, 8, "its window is cached again");
    stand.cache.discard(kv);
    assert!(stand.cache.usage().is_conserved_when_idle());
}

#[test]
fn quarantined_windows_are_not_handed_out() {
    let mut cache = mk_cache(24, 2, 4, false);
    let kv = cache.begin_received(4, 4).expect("pages");
    let quarantined = cache.quarantine(kv);
    assert_eq!(cache.usage().window_pages.quarantined, 2);
    assert!(cache.begin_received(4, 4).is_none());
    cache.release(quarantined);
    let kv = cache.begin_received(4, 4).expect("pages");
    cache.discard(kv);
    assert!(cache.usage().is_conserved_when_idle());
}
