//! Which texts tags have.

use super::*;
use crate::grammar::tests::{compile, has_tokens, mk_grammars, tokens};
use crate::grammar::{Grammar, GrammarError, GrammarSource};
use serde_json::json;

fn tag(begin: &str, schema: Value, end: &str) -> Tag {
    Tag {
        begin: begin.to_owned(),
        schema,
        end: end.to_owned(),
    }
}

fn compiled(structures: Vec<Tag>, triggers: &[&str]) -> Result<Grammar, GrammarError> {
    let triggers = triggers.iter().map(|&trigger| trigger.to_owned()).collect();
    let tag = StructuralTag {
        structures,
        triggers,
    };
    compile(&mk_grammars(), GrammarSource::StructuralTag(tag))
}

#[test]
fn text_is_free_until_a_trigger_and_after_an_end() {
    let number = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    let grammar = compiled(
        vec![
            tag("<f=one>", number, "</f>"),
            tag("<f=two>", json!({"type": "array"}), "</f>"),
        ],
        &["<f="],
    );
    let grammar = grammar.expect("a grammar");
    for text in [
        "",
        "no call, <f or = at all\n",
        "call <f=one>{\"n\": 5}</f> and <f=two>[1]</f><f=two>[]</f>.",
    ] {
        assert!(has_tokens(&grammar, &tokens(text)), "{text}");
    }
    for text in [
        "call <f=",
        "call <f=three>",
        "<f=one>{\"n\": \"x\"}</f>",
        "<f=one>{\"n\": 5}",
        "<f=two>{\"n\": 5}</f>",
    ] {
        assert!(!has_tokens(&grammar, &tokens(text)), "{text}");
    }
}

#[test]
fn special_tokens_begin_and_end_tags_as_tokens_and_not_as_text() {
    // Token 1 is special.
    let grammar = compiled(
        vec![tag(
            "<|im_start|>call",
            json!({"type": "integer"}),
            "<|im_start|>",
        )],
        &["<|im_start|>"],
    );
    let grammar = grammar.expect("a grammar");
    let mut with_call = tokens("text");
    with_call.push(1);
    with_call.extend(tokens("call5"));
    assert!(!has_tokens(&grammar, &with_call));
    with_call.push(1);
    assert!(has_tokens(&grammar, &with_call));
    with_call.extend(tokens(" more"));
    assert!(has_tokens(&grammar, &with_call));
}

#[test]
fn tags_are_refused_by_what_is_wrong() {
    let any = || json!({});
    for (structures, triggers, problem) in [
        (vec![], vec![], "give from 1 to 128 tags"),
        (
            vec![tag("<a>", any(), "")],
            vec!["<b"],
            "<a> begins with no trigger",
        ),
        (
            vec![tag("<a>", any(), "")],
            vec!["<a", "<b"],
            "the trigger <b begins no tag",
        ),
        (
            vec![tag("<a>", json!({"not": {}}), "")],
            vec!["<a"],
            "<a>: at #: not cannot be enforced",
        ),
        (
            vec![tag("a<|im_end|>", any(), "")],
            vec!["a<|im_end|>"],
            "a special token in it is not where it begins",
        ),
    ] {
        let error = compiled(structures, &triggers).expect_err("it is refused");
        assert!(error.to_string().contains(problem), "{error}");
    }
}
