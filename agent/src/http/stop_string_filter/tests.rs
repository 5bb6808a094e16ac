//! Stop strings are never sent, not even in part, and all other text is.

use super::StopStringFilter;

fn out(stops: &[&str]) -> StopStringFilter {
    StopStringFilter::new(stops.iter().map(|&s| s.to_owned()).collect(), false)
}

#[test]
fn without_stop_strings_text_passes_immediately() {
    let mut text = out(&[]);
    assert_eq!(text.push("ab"), "ab");
    assert_eq!(text.finish("c", None), "c");
}

#[test]
fn the_beginning_of_a_stop_string_is_held_back() {
    let mut text = out(&["END"]);
    assert_eq!(text.push("one E"), "one ");
    assert_eq!(text.push("N"), "");
    assert_eq!(text.push("e"), "ENe");
    assert_eq!(text.finish("", None), "");
}

#[test]
fn a_stop_string_across_several_deltas_is_removed() {
    let mut text = out(&["\n\n", "stop"]);
    assert_eq!(text.push("a\n"), "a");
    assert_eq!(text.finish("\nmore", Some("\n\n")), "");
    let mut text = out(&["stop"]);
    assert_eq!(text.push("a st"), "a ");
    assert_eq!(text.finish("op", Some("stop")), "");
}

#[test]
fn held_text_is_sent_when_the_answer_ends_otherwise() {
    let mut text = out(&["END"]);
    assert_eq!(text.push("x EN"), "x ");
    assert_eq!(text.finish("", None), "EN");
}

#[test]
fn a_kept_stop_string_is_sent() {
    let mut text = StopStringFilter::new(vec!["END".to_owned()], true);
    assert_eq!(text.push("x E"), "x E");
    assert_eq!(text.finish("ND", Some("END")), "ND");
}

#[test]
fn characters_of_several_bytes_are_not_split() {
    let mut text = out(&["é!"]);
    assert_eq!(text.push("caf"), "caf");
    assert_eq!(text.push("é"), "");
    assert_eq!(text.push("é"), "é");
    assert_eq!(text.finish("!", Some("é!")), "");
}
