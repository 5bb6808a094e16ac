//! Where texts end by expressions, beside the `regex` crate, and which expressions are refused.

use super::*;
use proptest::prelude::*;
use regex::Regex;

fn mk(patterns: &[&str]) -> Result<StopRegex, ParamsError> {
    StopRegex::new(patterns.iter().map(ToString::to_string).collect())
}

/// The text up to the end of the first match, and the expression.
fn cut<'a>(patterns: &[&str], text: &'a str) -> Option<(&'a str, String)> {
    let mut matcher = mk(patterns).unwrap().matcher().unwrap();
    for (at, next) in text.char_indices() {
        if let Some(RegexMatch { pattern, has_last }) = matcher.push(next) {
            let end = if has_last { at + next.len_utf8() } else { at };
            return Some((&text[..end], pattern));
        }
    }
    None
}

fn cut_one<'a>(pattern: &str, text: &'a str) -> Option<&'a str> {
    cut(&[pattern], text).map(|(cut, _)| cut)
}

#[test]
fn a_text_ends_with_the_first_character_that_completes_a_match() {
    assert_eq!(cut_one(r"\d+", "in 1999"), Some("in 1"));
    assert_eq!(cut_one(r"\d{3}", "12 345678"), Some("12 345"));
    assert_eq!(cut_one("a.*z", "xaüyz!z"), Some("xaüyz"));
    assert_eq!(cut_one("[äö]🙂", "ä ö🙂"), Some("ä ö🙂"));
    assert_eq!(cut_one("(?i)stop", "a StOpx"), Some("a StOp"));
    assert_eq!(cut_one("stop", "sto p"), None);
}

#[test]
fn the_first_expression_of_those_that_match_together_is_named() {
    let (text, pattern) = cut(&["x", "b+", "ab"], "aab").unwrap();
    assert_eq!((text, pattern.as_str()), ("aab", "b+"));
}

#[test]
fn assertions_see_the_text_so_far() {
    assert_eq!(cut_one("^b", "ab\nb"), None);
    assert_eq!(cut_one("(?m)^b", "ab\nb"), Some("ab\nb"));
    assert_eq!(cut_one("END$", "ENDE END"), Some("END"));
    assert_eq!(cut_one(r"\bé\b", "caféé é"), Some("caféé é"));
    assert_eq!(
        cut_one(r"a\B", "a ab"),
        Some("a a"),
        "before what shows that no word ends"
    );
    assert_eq!(cut_one(r"(?m)a$", "ab"), Some("a"));
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (pattern, problem) in [
        (
            "ab(c",
            "contains `ab(c`, which is wrong at byte 2: unclosed group",
        ),
        (
            r"a(?=b)",
            "contains `a(?=b)`, which is wrong at byte 1: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            r"(a)\1",
            "contains `(a)\\1`, which is wrong at byte 3: backreferences are not supported",
        ),
        (
            r"\p{Nope}",
            "contains `\\p{Nope}`, which is wrong at byte 0: Unicode property not found",
        ),
        (
            "a*",
            "contains `a*`, which an empty text matches, so that it would end every answer immediately",
        ),
        (
            "^$",
            "contains `^$`, which an empty text matches, so that it would end every answer immediately",
        ),
        (
            r"((\w{50}){50}){50}",
            "has 252551 places with its repetitions written out; give at most 1024",
        ),
        (
            r"\w{30}",
            "takes more than 256 KiB as an automaton; repeat less, or smaller classes",
        ),
    ] {
        let why = mk(&["x", pattern]).unwrap_err();
        assert_eq!((why.param, why.problem.as_str()), ("stop_regex", problem));
    }
    let long = "a".repeat(257);
    assert!(mk(&[&long]).unwrap_err().problem.contains("257 bytes"));
    assert!(
        mk(&["a"; 33])
            .unwrap_err()
            .problem
            .contains("33 expressions")
    );
    assert!(mk(&[]).unwrap().is_empty());
}

#[test]
fn what_is_kept_of_a_text_does_not_grow() {
    let mut matcher = mk(&[r"a(.|\n)*(.|\n)*\bZ\b"]).unwrap().matcher().unwrap();
    for _ in 0..20_000 {
        assert_eq!(matcher.push('a'), None);
    }
    let states = matcher.closed.has.len();
    assert!(matcher.reached.len() <= states && matcher.open.capacity() <= 8 * states);
}

proptest! {
    /// The `regex` crate finds no match in any shorter text, and one in the text that is cut.
    #[test]
    fn texts_end_where_a_search_of_each_of_their_beginnings_first_finds_a_match(
        pattern in "([abé]|[ab]\\+|\\(ab\\|é\\)|\\.|\\\\b|\\[\\^a\\]|a\\{2\\}|\\$){1,5}",
        text in "[abé \n]{0,12}",
    ) {
        let Ok(stop) = mk(&[&pattern]) else { return Ok(()) };
        let oracle = Regex::new(&pattern).unwrap();
        let mut ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let expected = ends.find(|&end| oracle.is_match(&text[..end]));
        let mut matcher = stop.matcher().unwrap();
        let found = text.char_indices().find_map(|(at, c)| matcher.push(c).map(|m| (at + c.len_utf8(), m)));
        prop_assert_eq!(found.map(|(end, _)| end), expected);
    }
}
