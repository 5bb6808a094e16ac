//! Stop strings over pieces of text, end ids and their bounds.

use super::*;
use proptest::prelude::*;

fn mk_matcher(stops: &[&str]) -> StopMatcher {
    StopMatcher::new(stops.iter().map(ToString::to_string).collect())
}

#[test]
fn a_stop_string_is_found_across_pieces() {
    let mut matcher = mk_matcher(&["###"]);
    assert_eq!(matcher.push("a#"), None);
    assert_eq!(matcher.push("#"), None);
    assert_eq!(matcher.push("#b").as_deref(), Some("###"));
}

#[test]
fn the_start_of_a_stop_string_alone_ends_nothing() {
    let mut matcher = mk_matcher(&["abc"]);
    for piece in ["xab", "d", "a", "c"] {
        assert_eq!(matcher.push(piece), None, "{piece}");
    }
}

#[test]
fn the_first_to_be_complete_and_then_the_longest_wins() {
    let mut matcher = mk_matcher(&["b", "bc", "ab"]);
    assert_eq!(matcher.push("xabc").as_deref(), Some("ab"));
    let mut matcher = mk_matcher(&["b", "bc"]);
    assert_eq!(matcher.push("abc").as_deref(), Some("b"));
    let mut matcher = mk_matcher(&["abcd", "bc"]);
    assert_eq!(matcher.push("abcd").as_deref(), Some("bc"));
}

#[test]
fn end_ids_are_ignored_on_request_but_stop_ids_are_not() {
    let params = SamplingParams {
        ignore_eos: true,
        stop_token_ids: vec![7],
        ..SamplingParams::default()
    };
    let mut stop = StopChecker::new(&params, &[2], || unreachable!("no stop strings"));
    assert_eq!(stop.check(2, 1), None);
    let matched = StopMatch::Token(7);
    assert_eq!(stop.check(7, 2), Some(FinishReason::Stop { matched }));
}

#[test]
fn end_ids_are_banned_below_min_new_tokens() {
    let params = SamplingParams {
        min_new_tokens: 2,
        ..SamplingParams::default()
    };
    let stop = StopChecker::new(&params, &[2], || unreachable!("no stop strings"));
    assert_eq!(stop.banned(1).collect::<Vec<_>>(), [2]);
    assert_eq!(stop.banned(2).count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn pieces_do_not_matter(
        text in "[abé]{0,24}",
        stops in prop::collection::vec("[abé]{1,4}", 0..3),
        cuts in prop::collection::vec(0..24usize, 0..6),
    ) {
        let mut matcher = StopMatcher::new(stops.clone());
        let mut chars = text.chars().collect::<Vec<_>>();
        let mut matched = None;
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let rest = chars.split_off(cut.min(chars.len()));
            matched = matcher.push(&chars.iter().collect::<String>());
            chars = rest;
            if matched.is_some() {
                break;
            }
        }
        // What is seen of the text grows by a character at a time: the first sight that ends with a
        // stop string ends the answer.
        let ends = text.char_indices().map(|(at, char)| &text[..at + char.len_utf8()]);
        let expected = ends.into_iter().find_map(|seen| {
            let ended = stops.iter().filter(|stop| seen.ends_with(stop.as_str()));
            ended.max_by_key(|stop| stop.len())
        });
        prop_assert_eq!(matched.as_ref(), expected);
    }
}
