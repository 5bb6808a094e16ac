//! Facts about prefixes of what requests receive: a request finds in its pages what belongs there, however rooms fail, and
//! with writes under way for those that failed.

use super::*;
use crate::kvcache::pool::Quarantined;
use proptest::test_runner::TestRunner;
use std::collections::HashMap;

const PAGE_SIZE: usize = 2;
/// What a room that failed leaves in a page.
const JUNK: [u32; PAGE_SIZE] = [u32::MAX; PAGE_SIZE];

#[derive(Clone, Debug)]
enum Action {
    Ask(Vec<u32>),
    /// All of a room is written, and its row is its own.
    Arrive(usize),
    Fail(usize),
    /// A write of a room that has failed lands.
    Land(usize),
    Release(usize),
    Grow(usize, u32),
    /// To host memory and back.
    Retract(usize),
    End(usize),
    Flush,
}

fn mk_action() -> impl Strategy<Value = Action> {
    let which = 0..3usize;
    prop_oneof![
        4 => prop::collection::vec(0..2u32, 2..14).prop_map(Action::Ask),
        4 => which.clone().prop_map(Action::Arrive),
        1 => which.clone().prop_map(Action::Fail),
        1 => which.clone().prop_map(Action::Land),
        1 => which.clone().prop_map(Action::Release),
        3 => (which.clone(), 0..2u32).prop_map(|(i, token)| Action::Grow(i, token)),
        1 => which.clone().prop_map(Action::Retract),
        2 => which.prop_map(Action::End),
        1 => Just(Action::Flush),
    ]
}

/// A decode's cache, and what is in its pages.
struct Stand {
    cache: KvCache,
    contents: HashMap<u32, Vec<u32>>,
    arriving: Vec<Arriving>,
    running: Vec<(ReqKv, Vec<u32>)>,
    fenced: Vec<(Quarantined, Vec<u32>)>,
    /// Planted: pages are cached as soon as they are offered.
    caches_offers: bool,
}

struct Arriving {
    kv: ReqKv,
    tokens: Vec<u32>,
    /// Pages that prefill writes.
    offered: Vec<u32>,
}

impl Stand {
    /// Of a model with a window space or recurrent state, or neither.
    fn new((window, num_slots): (Option<usize>, Option<usize>), caches_offers: bool) -> Self {
        let spaces = Spaces {
            page_size: PAGE_SIZE,
            window,
        };
        Self {
            cache: KvCache::new(KvCacheSizes {
                num_pages: 14,
                spaces,
                num_window_pages: 12,
                num_slots,
                max_running_requests: 3,
                pre_alloc_size: 2,
                prefixes: Prefixes::Received,
            }),
            contents: HashMap::new(),
            arriving: Vec::new(),
            running: Vec::new(),
            fenced: Vec::new(),
            caches_offers,
        }
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Ask(tokens) => self.ask(tokens),
            Action::Arrive(i) if i < self.arriving.len() => self.arrive(i),
            Action::Fail(i) if i < self.arriving.len() => {
                let Arriving { kv, offered, .. } = self.arriving.remove(i);
                self.fenced.push((self.cache.quarantine(kv), offered));
            }
            Action::Land(i) => {
                for &page in self.fenced.get(i).iter().flat_map(|(_, offered)| offered) {
                    self.contents.insert(page, JUNK.to_vec());
                }
            }
            Action::Release(i) if i < self.fenced.len() => {
                self.cache.release(self.fenced.remove(i).0);
            }
            Action::Grow(i, token) if i < self.running.len() => self.grow(i, token),
            Action::Retract(i) if i < self.running.len() => self.retract(i),
            Action::End(i) if i < self.running.len() => {
                let (kv, tokens) = self.running.remove(i);
                self.cache.end(kv, &tokens);
            }
            Action::Flush => self.cache.flush(),
            Action::Arrive(_)
            | Action::Fail(_)
            | Action::Release(_)
            | Action::Grow(..)
            | Action::Retract(_)
            | Action::End(_) => {}
        }
    }

    fn ask(&mut self, tokens: Vec<u32>) {
        let len = tokens.len();
        let Some(mut kv) = self.cache.begin_received(&tokens[..len - 1], len) else {
            return;
        };
        if !self.cache.try_extend(&kv, len) {
            return self.cache.discard(kv);
        }
        let offered = self.cache.page_ids(&kv)[kv.cached_len() / PAGE_SIZE..].to_vec();
        if self.caches_offers {
            kv.received(len);
            self.cache.commit(&mut kv, &tokens);
        }
        self.arriving.push(Arriving {
            kv,
            tokens,
            offered,
        });
    }

    fn arrive(&mut self, i: usize) {
        if !self.cache.try_promote(&self.arriving[i].kv) {
            return;
        }
        let Arriving {
            mut kv,
            tokens,
            offered,
        } = self.arriving.remove(i);
        let first = self.cache.page_ids(&kv).len() - offered.len();
        for (page, written) in offered.iter().zip(tokens.chunks(PAGE_SIZE).skip(first)) {
            self.contents.insert(*page, written.to_vec());
        }
        kv.received(tokens.len());
        self.cache.commit(&mut kv, &tokens);
        self.running.push((kv, tokens));
    }

    /// A step computes a token.
    fn grow(&mut self, i: usize, token: u32) {
        let (kv, tokens) = &mut self.running[i];
        if !self.cache.try_extend(kv, tokens.len() + 1) {
            return;
        }
        let page = self.cache.page_ids(kv)[tokens.len() / PAGE_SIZE];
        assert!(kv.is_written(tokens.len()));
        tokens.push(token);
        let written = tokens.chunks(PAGE_SIZE).next_back();
        self.contents
            .insert(page, written.expect("a token").to_vec());
        let len = tokens.len();
        self.cache.computed(kv, len);
        self.cache.leave_window(kv);
    }

    fn retract(&mut self, i: usize) {
        let (kv, tokens) = self.running.remove(i);
        let places = self.cache.places(&kv).pages;
        let copies = places.iter().map(|page| self.contents[&page.0].clone());
        let copies: Vec<_> = copies.collect();
        self.cache.discard(kv);
        let Some(mut kv) = receive(&mut self.cache, tokens.len()) else {
            return;
        };
        assert_eq!(kv.cached_len(), 0, "it returns with pages of its own");
        for (page, copy) in self.cache.page_ids(&kv).into_iter().zip(copies) {
            self.contents.insert(page, copy);
        }
        kv.received(tokens.len());
        assert!(self.cache.try_promote(&kv));
        self.running.push((kv, tokens));
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let usage = self.cache.usage();
        let pages = usage.pages;
        prop_assert_eq!(
            pages.free + pages.held + pages.cached + pages.quarantined,
            pages.total
        );
        prop_assert_eq!(pages.cached, usage.locked + usage.unlocked);
        let arriving = self.arriving.iter();
        let cached = arriving.map(|room| (&room.kv, &room.tokens[..room.kv.cached_len()]));
        let running = self.running.iter().map(|(kv, tokens)| (kv, &tokens[..]));
        let early = cached.filter(|_| !self.caches_offers);
        for (kv, tokens) in early.chain(running) {
            let places = self.cache.page_ids(kv).into_iter();
            for (page, expected) in places.zip(tokens.chunks(PAGE_SIZE)) {
                let found = self.contents.get(&page).map(|found| &found[..]);
                prop_assert_eq!(found, Some(expected), "page {}", page);
            }
        }
        let held = self.running.iter().map(|(kv, tokens)| (kv, tokens.len()));
        let held = self.cache.held_tokens(held).full;
        prop_assert!(held <= (pages.held + usage.locked) * PAGE_SIZE);
        Ok(())
    }

    fn end(mut self) -> Result<(), TestCaseError> {
        for Arriving { kv, .. } in self.arriving.drain(..) {
            self.cache.discard(kv);
        }
        for (kv, tokens) in self.running.drain(..) {
            self.cache.end(kv, &tokens);
        }
        for (quarantined, _) in self.fenced.drain(..) {
            self.cache.release(quarantined);
        }
        let usage = self.cache.usage();
        prop_assert!(usage.is_conserved_when_idle());
        prop_assert_eq!(usage.pages.free + usage.unlocked, usage.pages.total);
        prop_assert_eq!(usage.slots.free, usage.slots.total);
        prop_assert_eq!(usage.window_pages.free, usage.window_pages.total);
        Ok(())
    }
}

fn run(mut stand: Stand, actions: Vec<Action>) -> Result<(), TestCaseError> {
    for action in actions {
        stand.apply(action);
        stand.check()?;
    }
    stand.end()
}

fn mk_actions() -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec(mk_action(), 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_request_finds_in_its_pages_what_belongs_there(
        actions in mk_actions(),
        window in prop::sample::select(vec![None, Some(3)]),
        num_slots in prop::sample::select(vec![None, Some(8)]),
    ) {
        run(Stand::new((window, num_slots), false), actions)?;
    }
}

#[test]
fn pages_that_are_cached_before_they_arrive_are_found_out() {
    let found = TestRunner::deterministic().run(&mk_actions(), |actions| {
        run(Stand::new((None, None), true), actions)
    });
    assert!(found.is_err());
}

#[test]
fn a_prompt_that_comes_again_lacks_its_last_page_only() {
    for (window, num_slots) in [(None, None), (Some(3), None), (None, Some(8))] {
        let mut stand = Stand::new((window, num_slots), false);
        stand.ask(vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(stand.arriving[0].offered.len(), 3);
        stand.arrive(0);
        stand.ask(vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(stand.arriving[0].kv.cached_len(), 4);
        assert_eq!(stand.arriving[0].offered.len(), 1);
        assert_eq!(
            stand.cache.available_tokens().full,
            28 - 8,
            "its two pages are not taken twice"
        );
    }
}

#[test]
fn what_many_requests_share_counts_once_in_what_they_hold() {
    let mut stand = Stand::new((None, None), false);
    for _ in 0..3 {
        stand.ask(vec![1, 2, 3, 4, 5]);
        stand.arrive(0);
    }
    let held = stand.running.iter().map(|(kv, tokens)| (kv, tokens.len()));
    assert_eq!(stand.cache.held_tokens(held).full, 4 + 3);
}
