//! The cache of a model with recurrent state against a naive one.

use super::{NaiveCache, PAGE_SIZE, mk_tokens};
use crate::kvcache::radix::{Caching, NodeId, PrefixMatch, RadixCache, StateMatch};
use crate::kvcache::{PageIdx, StateSlot};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Pages as those of any model, and the states of some of the prefixes.
#[derive(Debug, Default)]
struct NaiveStates {
    pages: NaiveCache,
    states: BTreeMap<Vec<u32>, StateSlot>,
}

impl NaiveStates {
    /// Pages of the longest prefix, and the state of the longest part of it that has one.
    fn match_prefix(&self, tokens: &[u32]) -> (Vec<PageIdx>, Option<(StateSlot, usize)>) {
        let all = self.pages.match_prefix(tokens);
        let state = |pages: usize| {
            let len = pages * PAGE_SIZE;
            Some((*self.states.get(&tokens[..len])?, len))
        };
        let state = (1..=all.len()).rev().find_map(state);
        (all, state)
    }

    /// The states of prefixes that end in one of the pages.
    fn forget(&mut self, evicted: &[PageIdx]) -> Vec<StateSlot> {
        let lost = |tokens: &Vec<u32>| {
            let last = self.pages.match_prefix(tokens).pop();
            last.is_some_and(|page| evicted.contains(&page))
        };
        let (gone, kept) = std::mem::take(&mut self.states)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(tokens, _)| lost(tokens));
        self.states = kept;
        self.pages.forget(evicted);
        gone.into_values().collect()
    }
}

#[derive(Clone, Debug)]
enum Action {
    Insert(Vec<u32>, bool),
    Match(Vec<u32>),
    Lock(Vec<u32>),
    UnlockStateOfOldest,
    UnlockOldest,
    Evict(usize),
    EvictStates(usize),
}

fn mk_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (mk_tokens(), any::<bool>()).prop_map(|(tokens, state)| Action::Insert(tokens, state)),
        2 => mk_tokens().prop_map(Action::Match),
        2 => mk_tokens().prop_map(Action::Lock),
        1 => Just(Action::UnlockStateOfOldest),
        1 => Just(Action::UnlockOldest),
        1 => (1..6usize).prop_map(Action::Evict),
        1 => (1..4usize).prop_map(Action::EvictStates),
    ]
}

/// A prefix that is in use, and its state if that is locked, too.
struct Locked {
    node: NodeId,
    tokens: Vec<u32>,
    state: Option<StateMatch>,
}

proptest! {
    #[test]
    fn agrees_with_a_naive_cache(actions in prop::collection::vec(mk_action(), 1..60)) {
        let mut cache = RadixCache::new(PAGE_SIZE, Caching::PagesAndStates);
        let mut naive = NaiveStates::default();
        let mut locked: Vec<Locked> = Vec::new();
        let (mut next_page, mut next_slot) = (0u32, 0u32);
        for action in actions {
            match action {
                Action::Insert(mut tokens, with_state) => {
                    tokens.truncate(tokens.len() / PAGE_SIZE * PAGE_SIZE);
                    let first = next_page;
                    next_page += u32::try_from(tokens.len() / PAGE_SIZE).unwrap();
                    let pages: Vec<_> = (first..next_page).map(PageIdx).collect();
                    cache.insert(&tokens, &pages);
                    naive.pages.insert(&tokens, &pages);
                    if with_state && !tokens.is_empty() {
                        let slot = StateSlot(next_slot);
                        next_slot += 1;
                        let is_new = !naive.states.contains_key(&tokens);
                        prop_assert_eq!(cache.insert_state(&tokens, slot), is_new);
                        naive.states.entry(tokens).or_insert(slot);
                    }
                }
                Action::Match(tokens) => {
                    let found = cache.match_prefix(&tokens);
                    let state = found.state.map(|state| (state.slot, state.len));
                    prop_assert_eq!((found.pages, state), naive.match_prefix(&tokens));
                }
                Action::Lock(tokens) => {
                    let found = cache.match_prefix(&tokens);
                    cache.lock(found.node);
                    if let Some(state) = found.state {
                        cache.lock_state(state.node);
                    }
                    let tokens = tokens[..found.pages.len() * PAGE_SIZE].to_vec();
                    locked.push(Locked { node: found.node, tokens, state: found.state });
                }
                Action::UnlockStateOfOldest => if let Some(oldest) = locked.first_mut()
                    && let Some(state) = oldest.state.take() {
                    cache.unlock_state(state.node);
                },
                Action::UnlockOldest => if !locked.is_empty() {
                    let oldest = locked.remove(0);
                    if let Some(state) = oldest.state {
                        cache.unlock_state(state.node);
                    }
                    cache.unlock(oldest.node);
                },
                Action::Evict(len) => {
                    let unlocked = cache.unlocked_pages();
                    let mut evicted = cache.evict(len);
                    prop_assert!(evicted.pages.len() >= len.min(unlocked));
                    evicted.states.sort();
                    let mut expected = naive.forget(&evicted.pages);
                    expected.sort();
                    prop_assert_eq!(evicted.states, expected);
                }
                Action::EvictStates(len) => {
                    let unlocked = cache.unlocked_states();
                    let evicted = cache.evict_states(len);
                    prop_assert_eq!(evicted.len(), len.min(unlocked));
                    naive.states.retain(|_, slot| !evicted.contains(slot));
                }
            }
            prop_assert_eq!(cache.locked_pages() + cache.unlocked_pages(), naive.pages.len());
            prop_assert_eq!(cache.locked_states() + cache.unlocked_states(), naive.states.len());
            for Locked { tokens, state, .. } in &locked {
                prop_assert_eq!(naive.pages.match_prefix(tokens).len() * PAGE_SIZE, tokens.len());
                if let Some(state) = state {
                    prop_assert_eq!(naive.states.get(&tokens[..state.len]), Some(&state.slot));
                }
            }
        }
        for Locked { node, state, .. } in locked {
            if let Some(state) = state {
                cache.unlock_state(state.node);
            }
            cache.unlock(node);
        }
        let evicted = cache.evict(usize::MAX);
        prop_assert_eq!(evicted.pages.len(), naive.pages.len());
        prop_assert_eq!(evicted.states.len(), naive.states.len());
    }
}

#[test]
fn a_leaf_that_lost_its_state_goes_first() {
    let mut cache = RadixCache::new(1, Caching::PagesAndStates);
    for (token, place) in [(1, 0), (2, 1)] {
        cache.insert(&[token], &[PageIdx(place)]);
        cache.insert_state(&[token], StateSlot(place));
    }
    cache.match_prefix(&[1]);
    assert_eq!(cache.evict_states(1), [StateSlot(1)], "of the older leaf");
    cache.insert(&[3], &[PageIdx(2)]);
    cache.insert_state(&[3], StateSlot(2));
    assert_eq!(cache.evict(1).pages, [PageIdx(1)]);
    assert_eq!(cache.evict(1).pages, [PageIdx(0)], "then by use");
}

#[test]
fn what_ends_below_a_node_with_a_state_leaves_it_of_use() {
    let mut cache = RadixCache::new(1, Caching::PagesAndStates);
    cache.insert(&[1, 2, 3], &[PageIdx(0), PageIdx(1), PageIdx(2)]);
    cache.insert_state(&[1], StateSlot(0));
    cache.insert_state(&[1, 2, 3], StateSlot(1));
    let state = |found: &PrefixMatch| found.state.map(|state| (state.slot, state.len));
    let found = cache.match_prefix(&[1, 2, 9]);
    assert_eq!(
        (found.pages.len(), state(&found)),
        (2, Some((StateSlot(0), 1)))
    );
    assert_eq!(cache.evict(1).states, [StateSlot(1)]);
    let found = cache.match_prefix(&[1, 2, 3]);
    assert_eq!(
        (found.pages.len(), state(&found)),
        (2, Some((StateSlot(0), 1)))
    );
}
