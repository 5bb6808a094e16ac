//! What is proposed, beside a search without an index.

use super::*;
use proptest::prelude::*;

fn propose(tokens: &[u32], max: usize) -> Vec<u32> {
    Ngram::default().propose(tokens, max)
}

#[test]
fn what_followed_the_same_tokens_is_proposed() {
    assert_eq!(propose(&[1, 2, 3, 4, 5, 6, 9, 1, 2, 3], 3), [4, 5, 6]);
    assert_eq!(propose(&[1, 2, 3, 4, 5, 6, 9, 8, 2, 3], 3), [0; 0]);
    assert_eq!(propose(&[1, 2], 3), [0; 0]);
}

#[test]
fn the_longest_match_wins_and_of_equal_ones_the_latest() {
    let longer_first = [7, 1, 2, 3, 4, 9, 1, 2, 3, 5, 7, 1, 2, 3];
    assert_eq!(propose(&longer_first, 1), [4]);
    let equal = [8, 1, 2, 3, 4, 9, 1, 2, 3, 5, 7, 1, 2, 3];
    assert_eq!(propose(&equal, 1), [5]);
}

#[test]
fn a_loop_goes_on() {
    assert_eq!(propose(&[5, 5, 5, 5], 3), [5, 5, 5]);
    assert_eq!(propose(&[1, 2, 1, 2, 1, 2], 4), [1, 2, 1, 2]);
}

/// The rule, by comparing every place.
fn searched(tokens: &[u32], max: usize) -> Vec<u32> {
    let ends = (1..tokens.len()).map(|end| (common_suffix(&tokens[..end], tokens), end));
    let places: Vec<_> = ends.filter(|&(len, _)| len >= MIN_LEN).collect();
    let latest = places
        .iter()
        .rev()
        .take(PLACES_MAX)
        .max_by_key(|&&(len, end)| (len, end));
    let Some(&(_, end)) = latest else {
        return Vec::new();
    };
    (0..max)
        .map(|i| tokens[end + i % (tokens.len() - end)])
        .collect()
}

proptest! {
    #[test]
    fn the_index_finds_what_a_search_finds(
        tokens in prop::collection::vec(0..4u32, 0..120),
        max in 1..6usize,
    ) {
        let mut ngram = Ngram::default();
        for len in 0..=tokens.len() {
            let tokens = &tokens[..len];
            prop_assert_eq!(ngram.propose(tokens, max), searched(tokens, max));
        }
    }
}
