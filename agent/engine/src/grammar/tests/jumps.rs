//! What grammars force, and masks behind drafts.

use super::{ENDS, GrammarSource, TOKENIZER, VOCAB, schema, state_of, tokens};

#[test]
fn a_mask_behind_drafts_is_the_one_after_them() {
    let source = schema(
        r#"{"type": "object", "additionalProperties": false, "required": ["colour", "size"],
            "properties": {"colour": {"enum": ["red", "green"]}, "size": {"type": "integer"}}}"#,
    );
    let ahead = state_of(source.clone());
    let text = tokens(r#"{"colour":"green","size":12}"#);
    for place in 0..text.len() {
        for len in 0..=4.min(text.len() - place) {
            let drafts = &text[place..place + len];
            assert_eq!(ahead.allowed(drafts), len);
            let mask = ahead.mask_job(drafts, Vec::new()).run();
            let later = state_of(source.clone());
            for token in &text[..place + len] {
                assert_eq!(later.take(*token), None);
            }
            let later = later.mask_job(&[], Vec::new()).run();
            assert_eq!(mask, later, "behind {drafts:?} at {place}");
        }
        assert_eq!(ahead.take(text[place]), None);
    }
    assert_eq!(ahead.allowed(&tokens("}")), 0);
    assert_eq!(ahead.allowed(&[ENDS[0]]), 0, "an end is no draft");
    assert_eq!(ahead.allowed(&[VOCAB]), 0);
}

#[test]
fn names_and_texts_are_forced_from_where_they_are_the_only_ones() {
    let properties = r#"{"colour": {"enum": ["red", "grey", "green"]}, "at": {"type": "integer"}}"#;
    let source = schema(&format!(
        r#"{{"type": "object", "required": ["colour", "at"], "properties": {properties}}}"#
    ));
    let state = state_of(source);
    let forced = |text: &str| {
        for token in tokens(text) {
            assert_eq!(state.take(token), None, "{text}");
        }
        let forced = state.forced(64);
        assert_eq!(state.allowed(&forced), forced.len());
        assert_eq!(state.forced(2), forced[..2.min(forced.len())]);
        let mask = state.mask_job(&[], Vec::new()).run();
        let allowed = mask.iter().map(|word| word.count_ones()).sum::<u32>();
        assert_eq!(allowed == 1, !forced.is_empty(), "{text}: {allowed}");
        TOKENIZER.decode(&forced, false)
    };
    assert_eq!(forced("{"), "");
    // Whitespace may come before and behind a colon.
    assert_eq!(forced("\""), "colour\"");
    assert_eq!(forced("colour\":\""), "");
    assert_eq!(forced("gree"), "n\"");
    assert_eq!(forced("n\",\"a"), "t\"");
    assert_eq!(forced("t\": -12"), "");
    assert!(state.forced(0).is_empty());
}

#[test]
fn forced_text_has_the_tokenizers_tokens() {
    let long = "a brown fox, two fences; ".repeat(40);
    for text in [
        "the name of the place",
        "<|im_end|> </s> <s>",
        "né \u{1f98a}\u{1f98a}",
        &long,
    ] {
        let state = state_of(GrammarSource::Choice(vec![text.to_owned()]));
        let mut drawn = Vec::new();
        while let [first, ..] = state.forced(64)[..] {
            let mask = state.mask_job(&[], Vec::new()).run();
            assert_eq!(mask.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
            assert_eq!(state.take(first), None);
            drawn.push(first);
        }
        // The last tokens could have been longer ones, and are not forced to be these.
        let forced = TOKENIZER.decode(&drawn, false);
        assert!(
            text.starts_with(&forced) && text.len() <= forced.len() + 16,
            "{forced}"
        );
        let words = tokens(text);
        assert!(
            words.starts_with(&drawn) || text.contains('<'),
            "{drawn:?} {words:?}"
        );
    }
}
