//! The radix cache against a naive one, with locks and evictions.

mod states;

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PAGE_SIZE: usize = 2;

/// Every cached page-aligned prefix with the page that ends it.
#[derive(Debug, Default)]
struct NaiveCache {
    pages: BTreeMap<Vec<u32>, PageIdx>,
}

impl NaiveCache {
    fn match_prefix(&self, tokens: &[u32]) -> Vec<PageIdx> {
        (1..=tokens.len() / PAGE_SIZE)
            .map_while(|len| self.pages.get(&tokens[..len * PAGE_SIZE]).copied())
            .collect()
    }

    fn insert(&mut self, tokens: &[u32], pages: &[PageIdx]) {
        for (i, &page) in pages.iter().enumerate() {
            self.pages
                .entry(tokens[..(i + 1) * PAGE_SIZE].to_vec())
                .or_insert(page);
        }
    }

    fn len(&self) -> usize {
        self.pages.len()
    }

    fn forget(&mut self, evicted: &[PageIdx]) {
        self.pages.retain(|_, page| !evicted.contains(page));
    }
}

#[derive(Clone, Debug)]
enum Action {
    Insert(Vec<u32>),
    Match(Vec<u32>),
    Lock(Vec<u32>),
    UnlockOldest,
    Evict(usize),
}

fn mk_tokens() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..2u32, 0..12)
}

fn mk_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => mk_tokens().prop_map(Action::Insert),
        2 => mk_tokens().prop_map(Action::Match),
        2 => mk_tokens().prop_map(Action::Lock),
        1 => Just(Action::UnlockOldest),
        1 => (1..6usize).prop_map(Action::Evict),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_naive_cache(actions in prop::collection::vec(mk_action(), 1..60)) {
        let mut cache = RadixCache::new(PAGE_SIZE, Caching::Pages);
        let mut naive = NaiveCache::default();
        let mut locked: Vec<(NodeId, Vec<u32>, Vec<PageIdx>)> = Vec::new();
        let mut next_page = 0u32;
        for action in actions {
            match action {
                Action::Insert(mut tokens) => {
                    tokens.truncate(tokens.len() / PAGE_SIZE * PAGE_SIZE);
                    let first = next_page;
                    next_page += u32::try_from(tokens.len() / PAGE_SIZE).expect("small");
                    let pages: Vec<_> = (first..next_page).map(PageIdx).collect();
                    let known = naive.match_prefix(&tokens).len();
                    let inserted = cache.insert(&tokens, &pages);
                    naive.insert(&tokens, &pages);
                    prop_assert_eq!(inserted.new_from, known);
                    prop_assert_eq!(cache.path_pages(inserted.node), naive.match_prefix(&tokens));
                }
                Action::Match(tokens) => {
                    prop_assert_eq!(cache.match_prefix(&tokens).pages, naive.match_prefix(&tokens));
                }
                Action::Lock(tokens) => {
                    let found = cache.match_prefix(&tokens);
                    cache.lock(found.node);
                    locked.push((found.node, tokens, found.pages));
                }
                Action::UnlockOldest => if !locked.is_empty() {
                    let (node, ..) = locked.remove(0);
                    cache.unlock(node);
                },
                Action::Evict(len) => {
                    let unlocked = cache.unlocked_pages();
                    let evicted = cache.evict(len).pages;
                    prop_assert!(evicted.len() >= len.min(unlocked));
                    naive.forget(&evicted);
                }
            }
            let total = cache.locked_pages() + cache.unlocked_pages();
            prop_assert_eq!(total, naive.pages.len());
            for (node, tokens, pages) in &locked {
                prop_assert_eq!(&cache.path_pages(*node), pages);
                prop_assert!(naive.match_prefix(tokens).len() >= pages.len());
            }
        }
        for (node, ..) in locked {
            cache.unlock(node);
        }
        prop_assert_eq!(cache.evict(usize::MAX).pages.len(), naive.pages.len());
        prop_assert_eq!(cache.tree.len(), 0);
    }
}

#[test]
fn the_least_recently_used_leaf_goes_first() {
    let mut cache = RadixCache::new(1, Caching::Pages);
    cache.insert(&[1, 2], &[PageIdx(0), PageIdx(1)]);
    cache.insert(&[1, 3], &[PageIdx(9), PageIdx(2)]);
    cache.match_prefix(&[1, 2]);
    assert_eq!(cache.evict(1).pages, [PageIdx(2)]);
    assert_eq!(cache.evict(1).pages, [PageIdx(1)]);
    assert_eq!(cache.evict(1).pages, [PageIdx(0)]);
}

#[test]
fn a_disabled_cache_keeps_nothing() {
    let mut cache = RadixCache::new(1, Caching::Off);
    assert_eq!(cache.insert(&[1], &[PageIdx(0)]).new_from, 1);
    assert!(cache.match_prefix(&[1]).pages.is_empty());
}
