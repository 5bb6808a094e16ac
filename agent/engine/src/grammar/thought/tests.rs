//! Which texts come ahead of an answer.

use super::*;
use crate::grammar::tests::{compile, has_tokens, mk_grammars, tokens};
use crate::grammar::{Grammar, GrammarSource};

fn behind(open: Option<&str>, lead: &str, source: GrammarSource) -> Grammar {
    let thought = Thought {
        open: open.map(str::to_owned),
        close: "</think>".to_owned(),
        lead: lead.to_owned(),
    };
    let source = GrammarSource::BehindThought(thought, Box::new(source));
    compile(&mk_grammars(), source).expect("a grammar")
}

#[track_caller]
fn assert_texts(grammar: &Grammar, right: &[&str], wrong: &[&str]) {
    for text in right {
        assert!(has_tokens(grammar, &tokens(text)), "{text}");
    }
    for text in wrong {
        assert!(!has_tokens(grammar, &tokens(text)), "{text}");
    }
}

fn sources() -> [(GrammarSource, &'static str, &'static str); 4] {
    let text = str::to_owned;
    let choice = vec![text("yes"), text("no")];
    [
        (GrammarSource::JsonObject, "{\"a\": [1]}", "{\"a\": [1]"),
        (GrammarSource::Regex(text("[a-c]+")), "abc", "abd"),
        (GrammarSource::Choice(choice), "yes", "yes."),
        (
            GrammarSource::Ebnf(text("root ::= \"(\" root \")\" | \"x\"")),
            "((x))",
            "((x)",
        ),
    ]
}

#[test]
fn an_answer_by_a_grammar_follows_a_thought_that_has_begun() {
    for (source, answer, other) in sources() {
        let grammar = behind(None, "", source);
        let after = |thought: &str, answer: &str| format!("{thought}</think>\n\n{answer}");
        let thoughts = ["", "So {", "a <b> </thin\n\n"].map(|thought| after(thought, answer));
        let right: Vec<&str> = thoughts.iter().map(String::as_str).collect();
        let wrong = after("So", other);
        assert_texts(&grammar, &right, &[answer, "So", &wrong]);
    }
}

#[test]
fn a_thought_that_may_begin_may_be_left_out() {
    for (source, answer, other) in sources() {
        let grammar = behind(Some("<think>"), "", source);
        let thought = format!("<think>So</think>{answer}");
        let wrong = format!("<think>So</think>{other}");
        assert_texts(&grammar, &[answer, &thought], &[other, &wrong, "<think>So"]);
    }
}

#[test]
fn what_leads_an_answer_is_there_with_a_thought_and_without() {
    let choice = GrammarSource::Choice(vec!["yes".to_owned()]);
    let grammar = behind(Some("<think>"), "final: ", choice);
    let right = ["final: yes", "<think>So</think>final: yes"];
    assert_texts(&grammar, &right, &["yes", "<think>So</think>yes"]);
}
