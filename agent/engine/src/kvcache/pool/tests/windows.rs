//! Facts about the window space: no page is lost, none is given away that a step reads, and a request goes on behind a
//! prefix only where the window before its end is there.

mod stand;

use super::{computed_prefixes, receive};
use crate::kvcache::pool::{KvCache, KvCacheSizes};
use crate::kvcache::spaces::Spaces;
use proptest::prelude::*;
use stand::{Request, Stand, mk_action};

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
        prefixes: computed_prefixes(radix),
    })
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
fn a_long_prompt_takes_no_window_from_the_ends_of_others() {
    let mut stand = Stand::new(16, 4, true);
    let tokens: Vec<u32> = (0..9).collect();
    let request = computed(&mut stand, &tokens, 9);
    stand.cache.end(request.kv, &tokens);
    let long: Vec<u32> = (100..130).collect();
    let other = computed(&mut stand, &long, 4);
    stand.cache.end(other.kv, &long);
    for (tokens, len) in [(&tokens, 8), (&long, 28)] {
        let kv = stand
            .cache
            .begin(&tokens[..tokens.len() - 1])
            .expect("a row");
        assert_eq!(kv.len, len, "the window at its end is there");
        stand.cache.discard(kv);
    }
    assert!(stand.cache.usage().is_conserved_when_idle());
}

#[test]
fn what_others_have_as_well_is_shared_until_the_window_has_left_it() {
    let mut stand = Stand::new(20, 4, true);
    let tokens: Vec<u32> = (0..9).collect();
    let request = computed(&mut stand, &tokens, 9);
    stand.cache.end(request.kv, &tokens);
    let alone = stand.cache.begin(&tokens).expect("a row");
    assert_eq!(stand.cache.shared_window(&alone), 0);
    let mut other = computed(&mut stand, &tokens, 9);
    assert_eq!(
        stand.cache.shared_window(&alone),
        2,
        "6 and 7: the other has left what is before"
    );
    other.tokens.extend(20..30);
    stand.live.push(other);
    stand.launch(0, 10);
    stand.settle();
    assert_eq!(stand.cache.shared_window(&alone), 0);
    let other = stand.live.pop().expect("it was pushed");
    assert_eq!(stand.cache.shared_window(&other.kv), 0);
    for kv in [alone, other.kv] {
        stand.cache.discard(kv);
    }
    assert!(stand.cache.usage().is_conserved_when_idle());
}

/// Where a second prompt parted from it, a third may, too.
#[test]
fn the_window_where_prompts_part_is_kept_like_those_at_their_ends() {
    let mut stand = Stand::new(12, 4, true);
    let [first, second] = [0, 50].map(|end| (0..8).chain(end + 8..end + 17).collect::<Vec<u32>>());
    for tokens in [&first, &second] {
        let request = computed(&mut stand, tokens, 4);
        stand.cache.end(request.kv, tokens);
    }
    let long: Vec<u32> = (100..140).collect();
    let other = computed(&mut stand, &long, 4);
    stand.cache.end(other.kv, &long);
    let kv = stand
        .cache
        .begin(&[&first[..8], &[99, 99]].concat())
        .expect("a row");
    assert_eq!(kv.len, 8, "the window of what all begin with is there");
    stand.cache.discard(kv);
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
    let kv = receive(&mut cache, 4).expect("pages");
    let quarantined = cache.quarantine(kv);
    assert_eq!(cache.usage().window_pages.quarantined, 2);
    assert!(receive(&mut cache, 4).is_none());
    cache.release(quarantined);
    let kv = receive(&mut cache, 4).expect("pages");
    cache.discard(kv);
    assert!(cache.usage().is_conserved_when_idle());
}
