//! Expressions of texts that have no mark in them.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn texts_without_a_mark_match_and_others_do_not(
        mark in prop::sample::select(vec!["</arg_value>", "</p>", "<", "[x]", "é^-"]),
        parts in prop::collection::vec(prop::sample::select(vec!["<", "/", "</arg", "_value>", "p>", "[", "x]", "é", "^-", "\n", "a"]), 0..9),
        at in prop::option::of(0..9usize),
    ) {
        let mut parts = parts;
        if let Some(at) = at {
            parts.insert(at.min(parts.len()), mark);
        }
        let text = parts.concat();
        let regex = without(mark).expect("it begins once");
        let whole = regex::Regex::new(&format!("(?s)^(?:{regex})$")).expect("an expression");
        prop_assert_eq!(whole.is_match(&text), !text.contains(mark), "{}: {}", mark, text);
    }
}

#[test]
fn a_mark_that_begins_inside_itself_is_not_written_out() {
    assert_eq!(without("<a<"), None);
    assert_eq!(without(""), None);
}
