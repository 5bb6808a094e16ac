//! No page is lost between allocator, radix cache and request rows, for any sequence of actions.

mod received;
mod states;
mod windows;

use super::*;
use proptest::prelude::*;

fn mk_cache(num_pages: usize, page_size: usize, radix: bool) -> KvCache {
    mk_cache_with(num_pages, page_size, radix, None)
}

fn mk_cache_with(
    num_pages: usize,
    page_size: usize,
    radix: bool,
    num_slots: Option<usize>,
) -> KvCache {
    let (max_running_requests, pre_alloc_size) = (4, 2);
    KvCache::new(KvCacheSizes {
        num_pages,
        spaces: Spaces {
            page_size,
            window: None,
        },
        num_window_pages: 0,
        num_slots,
        max_running_requests,
        pre_alloc_size,
        prefixes: computed_prefixes(radix),
    })
}

/// The prefixes that requests compute, or none.
fn computed_prefixes(radix: bool) -> Prefixes {
    if radix {
        Prefixes::Computed
    } else {
        Prefixes::Off
    }
}

/// A request that receives all of its `len` tokens, with pages for them.
fn receive(cache: &mut KvCache, len: usize) -> Option<ReqKv> {
    let kv = cache.begin_received(&[], len)?;
    if !cache.try_extend(&kv, len) {
        cache.discard(kv);
        return None;
    }
    Some(kv)
}

#[test]
fn what_two_requests_computed_at_once_is_cached_once_and_given_back_twice() {
    let mut cache = mk_cache(8, 2, true);
    let tokens = [1, 2, 3, 4, 5];
    let mut first = cache.begin(&tokens).expect("a row");
    let mut second = cache.begin(&tokens).expect("a row");
    for kv in [&mut first, &mut second] {
        assert!(cache.try_extend(kv, 5));
        kv.len = 5;
        cache.commit(kv, &tokens);
    }
    assert_eq!(cache.usage().pages.cached, 2);
    assert_eq!(cache.usage().pages.held, 4);
    cache.end(second, &tokens);
    cache.end(first, &tokens);
    assert!(cache.usage().is_conserved_when_idle());
    assert_eq!(cache.usage().unlocked, 2);
    assert_eq!(cache.begin(&tokens).expect("a row").len, 4);
}

#[test]
fn cached_pages_make_room_for_new_requests() {
    let mut cache = mk_cache(4, 1, true);
    let mut kv = cache.begin(&[1, 2, 3]).expect("a row");
    assert!(cache.try_extend(&kv, 3));
    kv.len = 3;
    cache.end(kv, &[1, 2, 3]);
    let kv = cache.begin(&[9]).expect("a row");
    assert!(!cache.try_extend(&kv, 5));
    assert!(cache.try_extend(&kv, 4));
    assert_eq!(cache.usage().unlocked, 0);
    cache.discard(kv);
    assert!(cache.usage().is_conserved_when_idle());
}

#[test]
fn quarantined_pages_are_not_handed_out() {
    let mut cache = mk_cache(2, 4, false);
    let kv = receive(&mut cache, 8).expect("pages");
    let quarantined = cache.quarantine(kv);
    assert_eq!(cache.usage().rows, 0);
    assert!(receive(&mut cache, 1).is_none());
    assert!(cache.usage().is_conserved_when_idle());
    cache.release(quarantined);
    assert!(receive(&mut cache, 8).is_some());
}

#[derive(Clone, Debug)]
enum Action {
    Begin(Vec<u32>),
    Extend(usize, usize),
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
        4 => (which.clone(), 1..8usize).prop_map(|(i, n)| Action::Extend(i, n)),
        2 => which.clone().prop_map(Action::Commit),
        2 => which.clone().prop_map(Action::End),
        1 => which.clone().prop_map(Action::Discard),
        1 => which.prop_map(Action::Quarantine),
        1 => Just(Action::Release),
        1 => Just(Action::Flush),
    ]
}

proptest! {
    #[test]
    fn pages_are_conserved(
        actions in prop::collection::vec(mk_action(), 1..80),
        page_size in prop::sample::select(vec![1usize, 4]),
        radix: bool,
    ) {
        let mut cache = mk_cache(16, page_size, radix);
        let mut live: Vec<(ReqKv, Vec<u32>)> = Vec::new();
        let mut quarantined = Vec::new();
        for action in actions {
            match action {
                Action::Begin(tokens) => {
                    if let Some(kv) = cache.begin(&tokens) {
                        live.push((kv, tokens));
                    }
                }
                Action::Extend(i, by) => if let Some((kv, tokens)) = live.get_mut(i) {
                    let len = (kv.len + by).min(tokens.len());
                    if cache.try_extend(kv, len) {
                        kv.len = len;
                    }
                },
                Action::Commit(i) => if let Some((kv, tokens)) = live.get_mut(i) {
                    cache.commit(kv, tokens);
                },
                Action::End(i) => if i < live.len() {
                    let (kv, tokens) = live.swap_remove(i);
                    cache.end(kv, &tokens);
                },
                Action::Discard(i) => if i < live.len() {
                    cache.discard(live.swap_remove(i).0);
                },
                Action::Quarantine(i) => if i < live.len() {
                    quarantined.push(cache.quarantine(live.swap_remove(i).0));
                },
                Action::Release => if let Some(pages) = quarantined.pop() {
                    cache.release(pages);
                },
                Action::Flush => cache.flush(),
            }
            let usage = cache.usage();
            let pages = usage.pages;
            prop_assert_eq!(pages.free + pages.held + pages.cached + pages.quarantined, pages.total);
            prop_assert_eq!(pages.cached, usage.locked + usage.unlocked);
            prop_assert_eq!(usage.rows, live.len());
        }
        for (kv, tokens) in live {
            cache.end(kv, &tokens);
        }
        for pages in quarantined {
            cache.release(pages);
        }
        let usage = cache.usage();
        prop_assert!(usage.is_conserved_when_idle());
        prop_assert_eq!(usage.pages.free + usage.unlocked, usage.pages.total);
    }
}
