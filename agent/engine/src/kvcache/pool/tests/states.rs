//! Facts about state slots: none is lost, and none is written that others read.

use super::mk_cache_with;
use crate::kvcache::StateSlot;
use crate::kvcache::pool::{KvCache, Quarantined, ReqKv};
use proptest::prelude::*;
use std::collections::HashMap;

/// What a slot holds: the state after these tokens.
type Slots = HashMap<StateSlot, Vec<u32>>;

struct Request {
    kv: ReqKv,
    tokens: Vec<u32>,
}

impl Request {
    /// As a step does that computes up to `len` tokens, and keeps the state after `snapshot` of them.
    fn step(&mut self, cache: &mut KvCache, slots: &mut Slots, len: usize, snapshot: usize) {
        let Self { kv, tokens } = self;
        if len <= kv.len || !cache.try_extend(kv, len) {
            return;
        }
        let state = kv.state.as_mut().expect("the model has states");
        let before = state.read();
        let found = before.map_or(&[][..], |slot| &slots[&slot]);
        assert_eq!(found, &tokens[..kv.len], "the state where the request is");
        slots.insert(state.working(), tokens[..len].to_vec());
        if snapshot > kv.len
            && snapshot <= len
            && let Some(kept) = cache.snapshot(kv, snapshot)
        {
            slots.insert(kept.slot, tokens[..snapshot].to_vec());
        }
        let from = kv.len;
        cache.computed(kv, len);
        cache.commit_new(kv, from, true, tokens);
    }
}

#[derive(Clone, Debug)]
enum Action {
    Begin(Vec<u32>),
    /// Request, tokens, and the pages of the snapshot.
    Step(usize, usize, usize),
    Commit(usize),
    End(usize),
    Discard(usize),
    Quarantine(usize),
    Release,
    Flush,
}

fn mk_action() -> impl Strategy<Value = Action> {
    let which = 0..4usize;
    prop_oneof![
        3 => prop::collection::vec(0..2u32, 1..20).prop_map(Action::Begin),
        6 => (which.clone(), 1..8usize, 0..8usize).prop_map(|(i, n, at)| Action::Step(i, n, at)),
        2 => which.clone().prop_map(Action::Commit),
        2 => which.clone().prop_map(Action::End),
        1 => which.clone().prop_map(Action::Discard),
        1 => which.prop_map(Action::Quarantine),
        1 => Just(Action::Release),
        1 => Just(Action::Flush),
    ]
}

const PAGE_SIZE: usize = 2;

fn apply(
    action: Action,
    cache: &mut KvCache,
    slots: &mut Slots,
    live: &mut Vec<Request>,
    quarantined: &mut Vec<Quarantined>,
) {
    match action {
        Action::Begin(tokens) => {
            if let Some(kv) = cache.begin(&tokens[..tokens.len() - 1]) {
                live.push(Request { kv, tokens });
            }
        }
        Action::Step(i, by, page) => {
            if let Some(request) = live.get_mut(i) {
                let len = (request.kv.len + by).min(request.tokens.len());
                request.step(cache, slots, len, page * PAGE_SIZE);
            }
        }
        Action::Commit(i) => {
            if let Some(Request { kv, tokens }) = live.get_mut(i) {
                cache.commit(kv, tokens);
            }
        }
        Action::End(i) if i < live.len() => {
            let Request { kv, tokens } = live.swap_remove(i);
            cache.end(kv, &tokens);
        }
        Action::Discard(i) if i < live.len() => cache.discard(live.swap_remove(i).kv),
        Action::Quarantine(i) if i < live.len() => {
            quarantined.push(cache.quarantine(live.swap_remove(i).kv));
        }
        Action::End(_) | Action::Discard(_) | Action::Quarantine(_) => {}
        Action::Release => {
            if let Some(pages) = quarantined.pop() {
                cache.release(pages);
            }
        }
        Action::Flush => cache.flush(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_request_begins_from_the_state_of_its_prefix_and_no_slot_is_lost(
        actions in prop::collection::vec(mk_action(), 1..80),
        num_slots in 1..10usize,
    ) {
        let mut cache = mk_cache_with(24, PAGE_SIZE, true, Some(num_slots));
        let (mut slots, mut live, mut quarantined) = (Slots::new(), Vec::new(), Vec::new());
        for action in actions {
            apply(action, &mut cache, &mut slots, &mut live, &mut quarantined);
            let usage = cache.usage();
            let counts = usage.slots;
            prop_assert_eq!(counts.free + counts.held + counts.cached + counts.quarantined, counts.total);
            prop_assert_eq!(counts.cached, usage.locked_states + usage.unlocked_states);
            prop_assert_eq!(usage.pages.cached, usage.locked + usage.unlocked);
            prop_assert!(counts.held >= live.len());
        }
        for Request { kv, tokens } in live {
            cache.end(kv, &tokens);
        }
        for pages in quarantined {
            cache.release(pages);
        }
        let usage = cache.usage();
        prop_assert!(usage.is_conserved_when_idle());
        prop_assert_eq!(usage.slots.free + usage.unlocked_states, num_slots);
        cache.flush();
        prop_assert_eq!(cache.usage().slots.free, num_slots);
    }
}

#[test]
fn a_prefix_is_found_again_where_its_state_was_kept() {
    let mut cache = mk_cache_with(16, PAGE_SIZE, true, Some(4));
    let mut slots = Slots::new();
    let tokens: Vec<u32> = (0..9).collect();
    let kv = cache.begin(&tokens).expect("a slot");
    let mut request = Request { kv, tokens };
    request.step(&mut cache, &mut slots, 9, 6);
    cache.end(request.kv, &request.tokens);
    let kv = cache.begin(&request.tokens).expect("a slot");
    assert_eq!(kv.len, 6, "not 8, whose pages would fit");
    assert_eq!(cache.usage().unlocked, 0);
    cache.discard(kv);
}

#[test]
fn the_state_that_a_request_begins_from_is_not_evicted_before_its_first_step() {
    let mut cache = mk_cache_with(16, PAGE_SIZE, true, Some(3));
    let mut slots = Slots::new();
    let tokens: Vec<u32> = (0..5).collect();
    let kv = cache.begin(&tokens).expect("a slot");
    let mut request = Request {
        kv,
        tokens: tokens.clone(),
    };
    request.step(&mut cache, &mut slots, 5, 4);
    cache.end(request.kv, &tokens);
    let mut second = Request {
        kv: cache.begin(&tokens).expect("a slot"),
        tokens: tokens.clone(),
    };
    assert_eq!(second.kv.len, 4);
    let other = cache.begin(&[9, 9]).expect("the third slot");
    assert!(cache.begin(&[8, 8]).is_none(), "the cached state is in use");
    second.step(&mut cache, &mut slots, 5, 0);
    let third = cache.begin(&[8, 8]).expect("the state was read");
    for kv in [second.kv, other, third] {
        cache.discard(kv);
    }
    assert!(cache.usage().is_conserved_when_idle());
}

#[test]
fn a_request_whose_prefix_another_cached_meanwhile_holds_one_state_for_its_end() {
    let mut cache = mk_cache_with(64, PAGE_SIZE, true, Some(8));
    let mut slots = Slots::new();
    let tokens: Vec<u32> = (0..41).collect();
    let [mut first, mut second] = [(); 2].map(|()| Request {
        kv: cache.begin(&tokens).expect("a slot"),
        tokens: tokens.clone(),
    });
    first.step(&mut cache, &mut slots, 5, 4);
    for len in (4..=40).step_by(4) {
        second.step(&mut cache, &mut slots, len, len);
        let held = cache.usage().slots.held;
        assert!(held <= 3, "{held} slots of two requests and a state");
    }
    cache.end(second.kv, &tokens);
    cache.end(first.kv, &tokens);
    let kv = cache.begin(&tokens).expect("a slot");
    assert_eq!(kv.len, 40, "the last state was cached at the end");
    cache.discard(kv);
    assert!(cache.usage().is_conserved_when_idle());
}
