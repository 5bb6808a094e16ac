//! Stop strings over pieces of text, end ids and their bounds.

use proptest::prelude::*;

use super::*;

fn mk_matcher(stops: &[&str]) -> StopMatcher {
    StopMatcher::new(stops.iter().map(ToString::to_string).collect())
}

#[test]
fn a_stop_string_is_found_across_pieces() {
    let mut matcher = mk_matcher(&["###"]);
    assert_eq!(
        matcher.push("a#"),
        StopPush {
            text: "a".to_owned(),
            matched: None
        }
    );
    assert_eq!(
        matcher.push("#"),
        StopPush {
            text: String::new(),
            matched: None
        }
    );
    let matched = Some("###".to_owned());
    assert_eq!(
        matcher.push("#b"),
        StopPush {
            text: String::new(),
            matched
        }
    );
}

#[test]
fn text_that_turns_out_harmless_is_given_out() {
    let mut matcher = mk_matcher(&["abc"]);
    assert_eq!(matcher.push("xab").text, "x");
    assert_eq!(matcher.push("d").text, "abd");
    assert_eq!(matcher.push("a").text, "");
    assert_eq!(matcher.finish(), "a");
}

#[test]
fn the_earliest_and_then_the_longest_stop_wins() {
    let mut matcher = mk_matcher(&["b", "bc", "ab"]);
    assert_eq!(matcher.push("xabc").matched.as_deref(), Some("ab"));
    let mut matcher = mk_matcher(&["b", "bc"]);
    assert_eq!(matcher.push("abc").matched.as_deref(), Some("bc"));
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
    #[test]
    fn pieces_do_not_matter(
        text in "[abé]{0,24}",
        stops in prop::collection::vec("[abé]{1,4}", 0..3),
        cuts in prop::collection::vec(0..24usize, 0..6),
    ) {
        let mut matcher = StopMatcher::new(stops.clone());
        let mut chars = text.chars().collect::<Vec<_>>();
        let mut out = String::new();
        let mut matched = None;
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let rest = chars.split_off(cut.min(chars.len()));
            let pushed = matcher.push(&chars.iter().collect::<String>());
            chars = rest;
            out.push_str(&pushed.text);
            matched = pushed.matched;
            if matched.is_some() {
                break;
            }
        }
        let earliest = stops.iter().filter_map(|stop| text.find(stop.as_str())).min();
        prop_assert_eq!(matched.is_some(), earliest.is_some());
        if matched.is_none() {
            out.push_str(&matcher.finish());
        }
        prop_assert_eq!(&out, &text[..earliest.unwrap_or(text.len())]);
    }
}
